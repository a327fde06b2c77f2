"""Steppers: a circuit and its store, stepped by calls, by inputs, or by Spark's micro-batches."""
