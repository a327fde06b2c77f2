"""The two engines: what each operator of a plan means on Arrow tables and in Spark SQL.

`arrow` computes small work on the driver, `spark` renders text for Spark. They agree with each
other and with `reference`; the tests hold them to it. Neither imports the other.
"""
