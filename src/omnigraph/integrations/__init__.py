"""Declared pipelines in orchestrators, each as a small optional module.

pipeline_run.py                runs a pipeline, and what became of it as plain values
airflow.py                     an operator for Airflow, from the extra `omnigraph[airflow]`
dagster.py                     an asset for Dagster, from the extra `omnigraph[dagster]`
"""
