"""Other systems, each as a small optional module: declared pipelines in orchestrators, graphs for libraries.

pipeline_run.py                runs a pipeline, and what became of it as plain values
airflow.py                     an operator for Airflow, from the extra `omnigraph[airflow]`
dagster.py                     an asset for Dagster, from the extra `omnigraph[dagster]`
graph_arrays.py                a snapshot or a result as arrays: edge index, features
networkx.py, igraph.py         the same as a graph of NetworkX, and of igraph
"""
