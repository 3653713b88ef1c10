"""May this actor do this here? Bundle files in, Cedar text out, decisions. Knows no HTTP and no graph.

actions.py                     what can be allowed, and which branches a rule about it may name
bundle.py                      a bundle as a value: groups, protected branches, rules
read_bundle.py                 a bundle file into that value, with the place of every mistake
members.py                     strict reading of YAML members, for bundles and test files
cedar.py                       a bundle as Cedar text: schema, policies, entities
policy.py                      Policy, which decides, and its decisions
cases.py                       expected decisions in a file, compared with those of a policy
"""
