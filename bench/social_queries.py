"""What is asked of the social network: the nine questions of the public graph-benchmark, hops and points.

A question has the same name in every language. Texts are what a user of the language would write; where it
takes two of them, the first one's row gives the second one's parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

PARAMETERS: Mapping[str, dict[str, object]] = {
    "q1": {},
    "q2": {},
    "q3": {"country": "United States"},
    "q4": {"lower": 30, "upper": 40},
    "q5": {"gender": "male", "city": "London", "country": "United Kingdom", "interest": "fine dining"},
    "q6": {"gender": "female", "interest": "tennis"},
    "q7": {"country": "United States", "lower": 23, "upper": 30, "interest": "photography"},
    "q8": {},
    "q9": {"below": 50, "above": 25},
}
"""The nine questions, with what the public benchmark asks them with."""

RANKED = {"q1": 2, "q3": 1, "q4": 1, "q6": 0, "q7": 0}
"""The column that decides which rows come first, where only the first few are wanted."""

TITLES = {
    "q1": "q1 most followed",
    "q2": "q2 where the most followed lives",
    "q3": "q3 youngest cities of a country",
    "q4": "q4 persons of an age by country",
    "q5": "q5 men of a city with an interest",
    "q6": "q6 cities of women with an interest",
    "q7": "q7 states of an age with an interest",
    "q8": "q8 paths of two hops",
    "q9": "q9 such paths between ages",
}


@dataclass(frozen=True, slots=True)
class Followed:
    """Two texts: the second is asked with the columns of the first one's only row, and its row follows."""

    first: str
    second: str


OMNIGRAPH: Mapping[str, str | Followed] = {
    "q1": """query q1() {
        match { $f: Person  $f follows $p }
        return { $p.number as number, $p.name as name, count($f) as followers }
        order { followers desc } limit 3
    }""",
    # There is no way to go on matching from an aggregate, so the winner is looked up first.
    "q2": Followed(
        """query most_followed() {
            match { $f: Person  $f follows $p }
            return { $p.number as number, $p.name as name, count($f) as followers }
            order { followers desc } limit 1
        }""",
        """query home($number: I64) {
            match { $p: Person { number: $number }  $p livesIn $c }
            return { $c.city as city, $c.state as state, $c.country as country }
        }""",
    ),
    "q3": """query q3($country: String) {
        match { $co: Country { country: $country }  $s stateIn $co  $c cityIn $s  $p livesIn $c }
        return { $c.city as city, avg($p.age) as age }
        order { age } limit 5
    }""",
    "q4": """query q4($lower: I64, $upper: I64) {
        match {
            $p: Person  $p.age >= $lower  $p.age <= $upper
            $p livesIn $c  $c cityIn $s  $s stateIn $co
        }
        return { $co.country as country, count($p) as persons }
        order { persons desc } limit 3
    }""",
    "q5": """query q5($gender: String, $city: String, $country: String, $interest: String) {
        match {
            $p: Person  lower($p.gender) = lower($gender)
            $p hasInterest $i  lower($i.interest) = lower($interest)
            $p livesIn $c  $c.city = $city  $c.country = $country
        }
        return { count($p) as persons }
    }""",
    "q6": """query q6($gender: String, $interest: String) {
        match {
            $p: Person  lower($p.gender) = lower($gender)
            $p hasInterest $i  lower($i.interest) = lower($interest)
            $p livesIn $c
        }
        return { count($p) as persons, $c.city as city, $c.country as country }
        order { persons desc } limit 5
    }""",
    "q7": """query q7($country: String, $lower: I64, $upper: I64, $interest: String) {
        match {
            $p: Person  $p.age >= $lower  $p.age <= $upper
            $p livesIn $c  $c cityIn $s  $s.country = $country
            $p hasInterest $i  lower($i.interest) = lower($interest)
        }
        return { count($p) as persons, $s.state as state, $s.country as country }
        order { persons desc } limit 1
    }""",
    "q8": "query q8() { match { $a: Person  $a follows $b  $b follows $c } return { count($a) as paths } }",
    "q9": """query q9($below: I64, $above: I64) {
        match { $a: Person  $a follows $b  $b follows $c  $b.age < $below  $c.age > $above }
        return { count($a) as paths }
    }""",
    **{
        f"{hops} hops, {what}": f"""query q($number: I64) {{
            match {{ $p: Person {{ number: $number }}  $p follows{{1,{hops}}} $q }}
            return {{ {returned} }}
        }}"""
        for hops in (1, 2, 3)
        for what, returned in (("count", "count($q) as persons"), ("ids", "$q.number as number"))
    },
    "point": """query q($number: I64) {
        match { $p: Person { number: $number } }
        return { $p.name as name, $p.age as age, $p.gender as gender }
    }""",
    **{
        question: f"""query q($below: I64) {{
            match {{ $a: Person  $a.number < $below  $a follows $b  $b follows $c }}
            return {{ $a.number as first, $c.{last} as last }}
        }}"""
        for question, last in (("paths", "number"), ("named paths", "name"))
    },
}

CYPHER: Mapping[str, str] = {
    "q1": """MATCH (f:Person)-[:Follows]->(p:Person)
        RETURN p.number AS number, p.name AS name, count(f.number) AS followers
        ORDER BY followers DESC LIMIT 3""",
    "q2": """MATCH (f:Person)-[:Follows]->(p:Person)
        WITH p, count(f.number) AS followers ORDER BY followers DESC LIMIT 1
        MATCH (p)-[:LivesIn]->(c:City)
        RETURN p.number, p.name, followers, c.city, c.state, c.country""",
    "q3": """MATCH (p:Person)-[:LivesIn]->(c:City)-[:CityIn]->(:State)-[:StateIn]->(co:Country)
        WHERE co.country = $country
        RETURN c.city AS city, avg(p.age) AS age ORDER BY age LIMIT 5""",
    "q4": """MATCH (p:Person)-[:LivesIn]->(:City)-[:CityIn]->(:State)-[:StateIn]->(co:Country)
        WHERE p.age >= $lower AND p.age <= $upper
        RETURN co.country AS country, count(*) AS persons ORDER BY persons DESC LIMIT 3""",
    "q5": """MATCH (p:Person)-[:HasInterest]->(i:Interest)
        WHERE lower(i.interest) = lower($interest) AND lower(p.gender) = lower($gender)
        WITH p, i MATCH (p)-[:LivesIn]->(c:City)
        WHERE c.city = $city AND c.country = $country
        RETURN count(p) AS persons""",
    "q6": """MATCH (p:Person)-[:HasInterest]->(i:Interest)
        WHERE lower(i.interest) = lower($interest) AND lower(p.gender) = lower($gender)
        WITH p, i MATCH (p)-[:LivesIn]->(c:City)
        RETURN count(p.number) AS persons, c.city AS city, c.country AS country
        ORDER BY persons DESC LIMIT 5""",
    "q7": """MATCH (p:Person)-[:LivesIn]->(:City)-[:CityIn]->(s:State)
        WHERE p.age >= $lower AND p.age <= $upper AND s.country = $country
        WITH p, s MATCH (p)-[:HasInterest]->(i:Interest)
        WHERE lower(i.interest) = lower($interest)
        RETURN count(p.number) AS persons, s.state AS state, s.country AS country
        ORDER BY persons DESC LIMIT 1""",
    "q8": "MATCH (a:Person)-[:Follows]->(b:Person)-[:Follows]->(c:Person) RETURN count(*) AS paths",
    "q9": """MATCH (a:Person)-[:Follows]->(b:Person)-[:Follows]->(c:Person)
        WHERE b.age < $below AND c.age > $above RETURN count(*) AS paths""",
    # One shortest path to each is the fastest way to the distinct persons; one hop has no need of it.
    **{
        f"{hops} hops, {what}": f"""MATCH (p:Person)-[:Follows{path}]->(q:Person)
        WHERE p.number = $number AND q.number <> $number RETURN {returned}"""
        for hops, path in ((1, ""), (2, "* SHORTEST 1..2"), (3, "* SHORTEST 1..3"))
        for what, returned in (("count", "count(*) AS persons"), ("ids", "q.number AS number"))
    },
    "point": "MATCH (p:Person) WHERE p.number = $number RETURN p.name, p.age, p.gender",
    **{
        question: f"""MATCH (a:Person)-[:Follows]->(:Person)-[:Follows]->(c:Person)
        WHERE a.number < $below RETURN a.number, c.{last}"""
        for question, last in (("paths", "number"), ("named paths", "name"))
    },
}

SQL: Mapping[str, str] = {
    "q1": """SELECT p.number, any_value(p.name), count(*) AS followers
        FROM Follows f JOIN Person p ON f.dst = p.number
        GROUP BY p.number ORDER BY followers DESC LIMIT 3""",
    "q2": """WITH top AS (
            SELECT dst, count(*) AS followers FROM Follows GROUP BY dst ORDER BY followers DESC LIMIT 1
        )
        SELECT p.number, p.name, followers, c.city, c.state, c.country
        FROM top JOIN Person p ON top.dst = p.number
        JOIN LivesIn l ON l.src = p.number JOIN City c ON l.dst = c.number""",
    "q3": """SELECT c.city, avg(p.age) AS age
        FROM Person p JOIN LivesIn l ON l.src = p.number JOIN City c ON l.dst = c.number
        JOIN CityIn ci ON ci.src = c.number JOIN StateIn si ON si.src = ci.dst
        JOIN Country co ON si.dst = co.number
        WHERE co.country = $country GROUP BY c.city ORDER BY age LIMIT 5""",
    "q4": """SELECT co.country, count(*) AS persons
        FROM Person p JOIN LivesIn l ON l.src = p.number
        JOIN CityIn ci ON ci.src = l.dst JOIN StateIn si ON si.src = ci.dst
        JOIN Country co ON si.dst = co.number
        WHERE p.age >= $lower AND p.age <= $upper
        GROUP BY co.country ORDER BY persons DESC LIMIT 3""",
    "q5": """SELECT count(*) FROM Person p
        JOIN HasInterest h ON h.src = p.number JOIN Interest i ON h.dst = i.number
        JOIN LivesIn l ON l.src = p.number JOIN City c ON l.dst = c.number
        WHERE lower(i.interest) = lower($interest) AND lower(p.gender) = lower($gender)
        AND c.city = $city AND c.country = $country""",
    "q6": """SELECT count(*) AS persons, c.city, c.country FROM Person p
        JOIN HasInterest h ON h.src = p.number JOIN Interest i ON h.dst = i.number
        JOIN LivesIn l ON l.src = p.number JOIN City c ON l.dst = c.number
        WHERE lower(i.interest) = lower($interest) AND lower(p.gender) = lower($gender)
        GROUP BY c.city, c.country ORDER BY persons DESC LIMIT 5""",
    "q7": """SELECT count(*) AS persons, s.state, s.country FROM Person p
        JOIN LivesIn l ON l.src = p.number JOIN CityIn ci ON ci.src = l.dst
        JOIN State s ON ci.dst = s.number
        JOIN HasInterest h ON h.src = p.number JOIN Interest i ON h.dst = i.number
        WHERE p.age >= $lower AND p.age <= $upper AND s.country = $country
        AND lower(i.interest) = lower($interest)
        GROUP BY s.state, s.country ORDER BY persons DESC LIMIT 1""",
    "q8": "SELECT count(*) FROM Follows f JOIN Follows g ON f.dst = g.src",
    "q9": """SELECT count(*) FROM Follows f JOIN Person b ON f.dst = b.number
        JOIN Follows g ON g.src = b.number JOIN Person c ON g.dst = c.number
        WHERE b.age < $below AND c.age > $above""",
    "point": "SELECT name, age, gender FROM Person WHERE number = $number",
}
