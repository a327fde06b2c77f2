"""Scalars of Spark SQL, over one row type with values at the edges."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Annotated, Any, cast

import numpy as np

import stepping_spark as st

KINDS = {
    "k": "int",
    "b": "boolean",
    "c": "boolean",
    "ti": "tinyint",
    "si": "smallint",
    "i": "int",
    "j": "int",
    "l": "bigint",
    "f": "float",
    "d": "double",
    "e": "double",
    "p": "decimal(10,2)",
    "q": "decimal(4,3)",
    "w": "decimal(38,10)",
    "s": "string",
    "t": "string",
    "num": "string",
    "n": "binary",
    "day": "date",
    "due": "date",
    "ts": "timestamp_ntz",
    "tt": "timestamp_ntz",
    "z": "timestamp",
    "ints": "array<int>",
    "words": "array<string>",
}
"""The columns, with their types in Spark."""


class Row(st.Data):
    k: int
    b: bool | None
    c: bool | None
    ti: int | None
    si: int | None
    i: int | None
    j: int | None
    l: int | None  # noqa: E741
    f: float | None
    d: float | None
    e: float | None
    p: Annotated[Decimal, st.Precision(10, 2)] | None
    q: Annotated[Decimal, st.Precision(4, 3)] | None
    w: Annotated[Decimal, st.Precision(38, 10)] | None
    s: str | None
    t: str | None
    num: str | None
    n: bytes | None
    day: dt.date | None
    due: dt.date | None
    ts: st.LocalDateTime | None
    tt: st.LocalDateTime | None
    z: dt.datetime | None
    ints: list[int | None] | None
    words: list[str | None] | None


_VALUES: dict[str, list[Any]] = {
    "b": [True, False, None],
    "c": [None, True, True, False],
    "ti": [1, -7, 100, None, 0],
    "si": [300, -1, None, 32000],
    "i": [1, 2, -3, None, 1_000_000, 0, 7, -45_000],
    "j": [3, None, 2, 5, -4, 1, 11],
    "l": [10**12, -1, None, 0, 5, 2**52],
    "f": [0.5, -1.25, None, 3.0, 0.1],
    "d": [0.5, -2.5, None, 1e300, 2.5, 1e-7, 0.0, 3.999999, -0.1],
    "e": [1.0, 2.0, float("nan"), -3.5, None, float("inf"), 7.25],
    "p": ["1.00", "-2.50", None, "99999999.99", "0.05", "12.34", "-0.01"],
    "q": ["1.500", None, "-0.001", "9.999", "0.125"],
    "w": ["1.0000000000", "-12345678901234567890.1234567891", None, "0.5"],
    "s": ["", "abc", "Hello World", None, " x ", "a%b_c", "ünï", "12", "a,b,,c", "Straße"],
    "t": ["b", None, "x", "ABC", "Hello", ",", "o"],
    "num": ["1", "-20", None, "3", "007"],
    "n": [b"", b"\x00\x7f", None, b"abc"],
    "day": [(2024, 2, 29), (1969, 12, 31), None, (2023, 1, 1), (2020, 12, 31), (1600, 3, 1)],
    "due": [(2024, 3, 31), None, (1970, 1, 1), (2023, 6, 15), (2024, 2, 29)],
    "ts": [(2024, 2, 29, 12, 34, 56, 789000), None, (1969, 12, 31, 23, 59, 59), (2023, 1, 31)],
    "tt": [(2024, 2, 28, 1, 2, 3, 4), (2000, 1, 1), None],
    "z": [(2024, 7, 1, 10, 0, 0), (1960, 5, 5, 5, 5, 5, 5), None],
    "ints": [[1, 2, 3], [], None, [None, 5], [7]],
    "words": [["a", "b"], None, ["x", None], []],
}
_MADE: dict[str, Any] = {
    **dict.fromkeys("pqw", Decimal),
    **dict.fromkeys(("day", "due"), lambda v: dt.date(*v)),
    **dict.fromkeys(("ts", "tt"), lambda v: dt.datetime(*v)),
    "z": lambda v: dt.datetime(*v).replace(tzinfo=dt.UTC),
    "f": lambda v: float(np.float32(v)),
}


def _value(name: str, i: int) -> Any:
    values = _VALUES[name]
    v = values[i % len(values)]
    return v if v is None or name not in _MADE else _MADE[name](v)


ROWS = [Row(k=i, **cast("Any", {name: _value(name, i) for name in _VALUES})) for i in range(37)]

CASES = r"""
1
-1
2147483647
2147483648
-2147483648
-2147483649
9223372036854775808
1L
-5L
2S
3Y
1.5
.5
5.
-1.50
0.05
1e3
-1.5e-2
1.5D
2.5F
1.5BD
1.00BD
X'1F'
X'ABC'
'a'
"dq"
'it''s'
'a\'b'
'a\nb\tc'
'a' 'b'
'\%\_'
r'a\d'
'\u0041'
TRUE
false
NULL
DATE '2024-02-29'
DATE '2024-2-9'
DATE'1600-03-01'
TIMESTAMP_NTZ '2024-02-29 12:34:56'
TIMESTAMP_NTZ '2024-02-29'
TIMESTAMP '2024-02-29 12:34:56'
TIMESTAMP '2024-02-29 12:34:56+02:00'
INTERVAL '90' DAY
INTERVAL 3 HOURS
INTERVAL '1' WEEK
INTERVAL '1 12:30:00' DAY TO SECOND
INTERVAL 1 DAY 2 HOURS
date '1998-12-01' - interval '90' day
date '1998-12-01' + interval '3' month
date '1998-12-01' - interval 1 year
TIMESTAMP_NTZ '2024-02-29 12:34:56' + INTERVAL '1' DAY
1 + 1
1 + 1.5
2 * 3.25
7 / 2
7 % 3
-7 % 3
7 DIV 2
1.0 / 3
1 / 3.0
10 * 0.1
i
k + 1
i + j
i - 1
i * 2
i * j
i / 2
i / j
i % 3
i % j
i DIV 2
l DIV 7
- i
+ i
-(i)
ti + 27Y
ti * 300S
ti + i
si - ti
i + l
l + 1
l * 2
ti / si
ti % 7
l % 10
f + f
f * 2
f + d
f + i
f / 2
-f
d + 1
d * 2.5
d + i
d / 3
d % 2
d - e
e * 2
-d
-e
p + 1
p * 2
p * 0.05
p / 3
p / nullif(i, 0)
p / j
p / 3L
p / -3L
p / CAST(3 AS BIGINT)
p % 7
p - q
p * q
p / nullif(q, 0)
q + 0.1
q + i
q * l
p * i
p + l
p + ti
p * d
p + f
-p
w + 1
w * 0.5
w - p
w / 3
p + (1)
p * (i + 1)
num + 1
num * 2.5
num / 2
num + l
1 + NULL
i + NULL
p * NULL
NULL / 2
i = 1
i = 1.0
i = 1L
i = l
i <> j
i != 2
i < j
i <= 2.5
i > d
i >= p
p = 1
p < 2.5
p > q
p <= d
d = 0.5
f = 0.5
f = 0.1
f < d
e = e
e > 1
e < 'Infinity'
ti = si
w > p
s = 'abc'
s < t
s <> 'x'
num = 1
num > 2
num = 1.5
i = '2'
l = '5'
d = '0.5'
p = '1.00'
b = true
b = c
b <> c
b = 'true'
day = '2024-02-29'
day < '2024-01-01'
'2023-01-01' <= day
day = DATE '2024-02-29'
day < due
day = ts
ts < '2024-01-01'
ts < '2024-01-01 10:00:00'
ts > tt
ts > day
z > '2000-01-01'
z < TIMESTAMP '2024-01-01 00:00:00'
n = X'616263'
i = NULL
NULL = NULL
i <=> j
i <=> NULL
s <=> t
NULL <=> NULL
b <=> c
i IS NULL
i IS NOT NULL
NULL IS NULL
b IS TRUE
b IS NOT TRUE
b IS FALSE
b IS NOT FALSE
b IS UNKNOWN
i IS DISTINCT FROM j
i IS NOT DISTINCT FROM j
s IS DISTINCT FROM NULL
b AND c
b OR c
NOT b
!b
b AND NULL
b OR NULL
NOT NULL
b AND i > 0
i > 0 OR s = 'abc' AND NOT c
i IN (1, 2, 3)
i NOT IN (1, 2)
i IN (1, NULL)
i IN (1, 2.0)
s IN ('abc', 'x')
s NOT IN ('abc', NULL)
day IN ('2024-02-29', '2023-01-01')
d IN (1, 2.5)
p IN (1, 12.34)
i IN (j, 1)
NULL IN (1)
i BETWEEN 0 AND 5
i NOT BETWEEN 0 AND 5
day BETWEEN '2020-01-01' AND '2024-12-31'
day BETWEEN date '2020-01-01' AND date '2020-01-01' + interval '1' year
d BETWEEN 0 AND 2.5
p BETWEEN 0.05 - 0.01 AND 0.05 + 0.01
s BETWEEN 'a' AND 'b'
s LIKE 'a%'
s LIKE '%b%'
s NOT LIKE '%l_o%'
s LIKE 'a\%b\_c'
s LIKE 'a/%b/_c' ESCAPE '/'
s LIKE t
s ILIKE 'HELLO%'
s NOT ILIKE '%X%'
s RLIKE '^[a-z]+$'
NOT s RLIKE 'a'
s REGEXP 'l+'
s LIKE ANY ('a%', '%d')
s LIKE ALL ('a%', '%c')
s NOT LIKE ALL ('a%', '%d')
s NOT LIKE ANY ('a%', '%c')
CASE WHEN i > 0 THEN 1 ELSE 0 END
CASE WHEN i > 0 THEN 'pos' WHEN i = 0 THEN 'zero' END
CASE WHEN i > 0 THEN i ELSE 1.5 END
CASE WHEN b THEN 1 WHEN c THEN 2L ELSE 3.5D END
CASE i WHEN 1 THEN 'one' WHEN 2 THEN 'two' ELSE 'many' END
CASE s WHEN 'abc' THEN 1 WHEN NULL THEN 2 ELSE 3 END
CASE WHEN b THEN NULL ELSE day END
CASE WHEN b THEN day ELSE ts END
CASE WHEN j <> 0 THEN i / j END
CASE WHEN b THEN p ELSE q END
CASE WHEN b THEN p ELSE i END
CASE WHEN b THEN NULL END
CASE WHEN b THEN '1' ELSE i END
CASE WHEN NULL AND b THEN 1 ELSE 2 END
IF(b, i, j)
IF(i > 0, 'a', NULL)
if(b, 1, 2.5)
COALESCE(i, j, 0)
COALESCE(i, l)
COALESCE(i, 1.5)
COALESCE(p, 0)
COALESCE(s, t, 'none')
COALESCE(NULL, i)
COALESCE(NULL, NULL)
COALESCE(day, DATE '2000-01-01')
COALESCE(ti, 0)
COALESCE(q, p)
COALESCE(d, 0)
COALESCE(i, d)
NVL(i, 0)
IFNULL(s, 'x')
NVL2(i, s, t)
NVL2(i, 1, 2.5)
NULLIF(i, 1)
NULLIF(s, '')
NULLIF(p, 0)
NULLIF(i, j)
NULLIF(i, 2.0)
isnull(i)
isnotnull(s)
CAST(i AS BIGINT)
CAST(i AS DOUBLE)
CAST(i AS STRING)
CAST(i AS DECIMAL(12,2))
CAST(ti AS INT)
CAST(k AS TINYINT)
CAST(k AS SMALLINT)
CAST(l AS STRING)
CAST(l AS DOUBLE)
CAST(l AS DECIMAL(20,0))
CAST(p AS INT)
CAST(p AS BIGINT)
CAST(p AS DOUBLE)
CAST(p AS STRING)
CAST(p AS DECIMAL(12,4))
CAST(p AS DECIMAL(10,1))
CAST(p AS FLOAT)
CAST(q AS INT)
CAST(w AS STRING)
CAST(w AS DOUBLE)
CAST(d AS STRING)
CAST(d / 1e300 AS INT)
CAST(0.5 AS INT)
CAST(-2.5 AS INT)
CAST(f AS DOUBLE)
CAST(f AS STRING)
CAST(b AS INT)
CAST(b AS STRING)
CAST(i AS BOOLEAN)
CAST(num AS INT)
CAST(num AS BIGINT)
CAST(num AS DOUBLE)
CAST(num AS DECIMAL(5,1))
CAST('12' AS INT)
CAST(' 12 ' AS INT)
CAST('1e2' AS DOUBLE)
CAST('2024-02-29' AS DATE)
CAST('2024' AS DATE)
CAST('2024-02-29 10:00:00' AS TIMESTAMP_NTZ)
CAST(day AS STRING)
CAST(day AS TIMESTAMP_NTZ)
CAST(day AS TIMESTAMP)
CAST(ts AS DATE)
CAST(ts AS STRING)
CAST(tt AS STRING)
CAST(z AS DATE)
CAST(z AS STRING)
CAST(n AS STRING)
CAST(s AS BINARY)
CAST(s AS VARCHAR(3))
CAST(NULL AS INT)
CAST(NULL AS DATE)
i::bigint
'5'::int
i::string || 'x'
TRY_CAST(i AS STRING)
int(num)
string(i)
double(i)
date('2024-01-01')
bigint(i)
boolean(i)
decimal(i)
EXTRACT(YEAR FROM day)
EXTRACT(MONTH FROM ts)
EXTRACT(DAY FROM day)
EXTRACT(QUARTER FROM day)
EXTRACT(WEEK FROM day)
EXTRACT(DOW FROM day)
EXTRACT(DAYOFWEEK FROM day)
EXTRACT(DOY FROM day)
EXTRACT(HOUR FROM ts)
EXTRACT(MINUTE FROM ts)
EXTRACT(SECOND FROM ts)
EXTRACT(HOUR FROM z)
EXTRACT(DAY FROM INTERVAL '3' DAY)
date_part('year', day)
year(day)
month(day)
day(day)
dayofmonth(ts)
quarter(day)
hour(ts)
minute(ts)
second(ts)
dayofweek(day)
weekofyear(day)
year('2024-05-05')
year(day) + 1
year(day) * 100 + month(day)
day + 1
day - 1
1 + day
day + i
day - due
day + INTERVAL '1' DAY
day + INTERVAL 1 MONTH
day - INTERVAL '1' YEAR
day + INTERVAL '2' HOUR
INTERVAL '1' MONTH + day
ts + INTERVAL '1' DAY
ts - INTERVAL '90' MINUTE
ts + INTERVAL '1' MONTH
ts - tt
ts - day
z + INTERVAL '1' HOUR
date_add(day, 1)
date_add(day, i)
date_sub(day, 30)
dateadd(day, 5)
dateadd(MONTH, 1, ts)
date_add('2024-01-31', 1)
add_months(day, 1)
add_months(day, -13)
add_months(day, k)
months_between(day, due)
datediff(day, due)
datediff(DAY, due, day)
date_diff(MONTH, tt, ts)
timestampdiff(HOUR, tt, ts)
timestampadd(MINUTE, 5, ts)
last_day(day)
next_day(day, 'MON')
trunc(day, 'MM')
trunc(day, 'YEAR')
trunc(day, 'quarter')
trunc(day, 'week')
date_trunc('MONTH', ts)
date_trunc('HOUR', ts)
date_trunc('day', z)
date_trunc('MONTH', day)
try_to_date(num)
to_date('2024-01-05', 'yyyy-MM-dd')
to_date(ts)
date_format(day, 'yyyy-MM')
date_format(ts, 'yyyy-MM-dd HH:mm')
make_date(2024, 1, k % 28 + 1)
unix_date(day)
unix_timestamp(z)
timestamp_micros(pmod(l, 1000000000000000))
timestamp_micros(unix_micros(z))
timestamp_millis(i)
timestamp_millis(unix_millis(z))
timestamp_seconds(si)
timestamp_seconds(unix_seconds(z))
timestamp_seconds(p)
from_unixtime(0)
to_timestamp('2024-01-01 10:00:00')
s || t
s || 'x' || i
s || i
'a' || 1
day || ''
concat(s, t)
concat(s, i, b)
concat('a', NULL)
concat(p, '')
concat_ws('-', s, t)
concat_ws(',', 'a', NULL, 'b')
concat_ws('-', s, i)
upper(s)
lower(s)
ucase(s)
initcap(s)
length(s)
length(i)
char_length(t)
octet_length(s)
trim(s)
ltrim(s)
rtrim(s)
TRIM(BOTH 'a' FROM s)
TRIM(LEADING FROM s)
TRIM(TRAILING 'c' FROM s)
TRIM('x' FROM s)
btrim(s)
substring(s, 2)
substring(s, 1, 3)
substr(s, 2, 2)
substr(s, -3)
substring(s FROM 2 FOR 3)
substring(i, 1, 2)
left(s, 2)
right(s, 2)
left(s, 0)
right(s, k)
position('b' IN s)
position('b', s)
locate('o', s, 6)
instr(s, 'b')
replace(s, 'a', 'zz')
replace(s, 'a')
translate(s, 'abc', 'xyz')
reverse(s)
repeat(s, 2)
lpad(s, 5, '*')
rpad(s, 5, '*')
lpad(s, 2)
lpad(i, 5, '0')
split(s, ',')
split(s, ',')[0]
split_part(s, ',', 2)
regexp_replace(s, '[aeiou]', '#')
regexp_extract(s, '([a-z]+)', 1)
startswith(s, 'a')
endswith(s, 'c')
contains(s, 'b')
overlay(s PLACING 'zz' FROM 2 FOR 1)
overlay(s, 'zz', 2)
ascii(s)
chr(65)
char(66)
md5(s)
sha2(s, 256)
crc32(s)
hash(i, s)
xxhash64(s)
base64(n)
hex(i)
hex(s)
unhex('4A')
soundex(s)
levenshtein(s, t)
format_string('%s-%d', s, i)
format_number(d, 2)
abs(i)
abs(d)
abs(p)
abs(ti)
sign(i)
sign(d)
signum(p)
ceil(d / 1e300)
ceil(p)
ceil(i)
floor(p)
floor(i)
floor(d % 7 / 2)
floor(-2.5)
round(p)
round(p, 1)
round(d, 1)
round(i, -1)
round(2.5)
round(-2.5)
round(1.005, 2)
round(e, 2)
round(l, 2)
bround(p, 1)
sqrt(4)
sqrt(i)
sqrt(abs(d))
power(2, 3)
power(i, 2)
pow(d, 0.5)
exp(0)
ln(2)
ln(p)
log(10)
log(2, 8)
log10(100)
log2(i)
sin(d)
pi()
e()
mod(i, 3)
mod(p, 2)
pmod(i, 7)
pmod(-7, 3)
greatest(i, j)
greatest(i, 1.5)
least(i, l)
least(day, due)
greatest(s, t)
greatest(i, NULL)
least(p, q)
width_bucket(d, 0, 10, 5)
i & j
i | 1
i ^ j
~i
l & 255
i << 2
i >> 1
shiftleft(i, 1)
bit_count(i)
isnan(d)
isnan(f)
nanvl(d, 0)
array(1, 2, 3)
array(i, j)
array(i, 1.5)
array(1, 2)[0]
ints
get(ints, 0)
concat(ints, array(1))[0]
try_element_at(ints, 1)
try_element_at(words, -1)
size(ints)
cardinality(words)
array_contains(ints, 2)
array_contains(words, s)
sort_array(ints)
array_max(ints)
array_join(words, '-')
array_distinct(ints)
array_union(ints, array(1))
concat(ints, array(9))
slice(ints, 1, 2)
flatten(array(ints, ints))
sequence(1, 3)
array_position(ints, 5)
exists(ints, x -> x > 2)
forall(ints, x -> x > 0)
transform(ints, x -> x + 1)
transform(ints, (x, n) -> x * n)
transform(ints, x -> x * i)
transform(words, w -> upper(w) || '!')
filter(ints, x -> x IS NOT NULL AND x BETWEEN 1 AND 5)
aggregate(ints, 0, (acc, x) -> acc + coalesce(x, 0))
aggregate(ints, 0L, (acc, x) -> acc + coalesce(x, 0), acc -> acc * 10)
reduce(ints, 0, (acc, x) -> acc + coalesce(x, 0))
zip_with(ints, ints, (x, y) -> x + y)
array_sort(ints, (x, y) -> CASE WHEN x < y THEN 1 WHEN x > y THEN -1 ELSE 0 END)
get(transform(ints, x -> transform(ints, y -> x + y)), 0)
named_struct('a', i, 'b', s).a
named_struct('a', 1, 'b', s).b
struct(i AS x, s).x
struct(i, s).s
map('a', i)['a']
element_at(map('a', 1, 'b', 2), 'b')
map_keys(map('a', 1))
to_json(named_struct('a', i))
get_json_object('{"a": 1}', '$.a')
from_json('{"a": 1}', 'a INT').a
typeof(i)
typeof(p + 1)
decode(i, 1, 'one', 2, 'two', 'many')
assert_true(true)
(i + j) * 2
(i, j) IN ((1, 3), (2, 2))
(i, s) = (1, 'abc')
p * (1 - 0.05) * (1 + 0.1)
CASE WHEN p = 0 THEN 0 ELSE p / p END
coalesce(round(100.0 * i / nullif(j, 0), 2), 0)
CAST(p * 10 AS INT) % 10
s IS NULL OR length(s) > 3 AND NOT s LIKE '%x%'
CAST(year(day) AS STRING) || '-' || lpad(month(day), 2, '0')
try_divide(i, j)
try_divide(p, 0)
try_add(i, 2147483647)
div(i, 2)
equal_null(i, j)
collation(s)
try_to_number('12', '99')
nvl(nullif(trim(s), ''), 'empty')
crc32('abc')
mask('abC1')
abs(w)
abs(p - w)
abs(q) / p
abs(-w)
greatest(p, 0)
greatest(p, q, i)
greatest(p, l)
greatest(w, p)
greatest(d, f)
greatest(d, e, -e)
least(d, 0.0D, -0.0D)
greatest(d, i)
greatest(p, d)
least(b, c)
least(ts, tt)
greatest(day, ts)
greatest(z, TIMESTAMP '2000-01-01 00:00:00')
least(n, X'00')
greatest(ts - tt, INTERVAL '1' DAY)
p / nullif(d, 0)
d / nullif(p, 0)
d / 3.0 * 100
q / e
p / f
d % 0.7
p % nullif(d, 0)
d * w
w - e
w = d
p IN (1, d)
l IN (4503599627370497L, 0.5D)
power(p, 2)
power(p, q)
power(q, -1)
power(d, w)
pow(e, i)
sqrt(p)
sqrt(w)
exp(q)
ln(w + 1)
log(p)
log10(p)
log10(d)
log2(w)
log(2, p)
log(p, i)
l DIV -1
p DIV 2
-7 DIV 2
div(l, 3)
s ILIKE '%STRASSE%'
s ILIKE '_b_'
s ILIKE t
ilike(s, 'A%')
hash(i)
hash(l)
hash(ti, si)
hash(b, d)
hash(e)
hash(p)
hash(w)
hash(q, s, t)
hash(n)
hash(day, ts, z)
hash(f)
hash(NULL)
hash(ints)
hash(ts - tt)
hash(concat(s, repeat(t, 40)))
xxhash64(i)
xxhash64(l, i)
xxhash64(w, day, NULL)
xxhash64(b, d, ts)
day > '2023-1-1'
day BETWEEN '2020-3-01' AND CAST('2024-3-1' AS DATE) + INTERVAL '60' DAY
day = '2024-02-29 12:00:00'
day >= '2023'
day >= '2023-1'
DATE '2024-2-9' - 1
TRY_CAST('2024-2-30' AS DATE)
ts < '2024-3-1'
ts < '2024-2-29 7:05:00'
TRY_CAST(concat('2024-1-', num) AS DATE)
TRY_CAST(concat(num, '-1') AS DATE)
TRY_CAST(concat('+2020-2-', i) AS DATE)
datediff(MICROSECOND, tt, ts)
datediff(SECOND, day, ts)
datediff(MINUTE, ts, z)
datediff(DAY, tt, ts)
datediff(DAY, z, day)
timestampdiff(WEEK, day, due)
timestampdiff(MONTH, day, due)
timestampdiff(QUARTER, due, z)
datediff(YEAR, tt, z)
datediff(DAY, '2024-01-01', ts)
datediff(DAY, day, NULL)
datediff(HOUR, ts, '2024-1-1 9:30')
timestampadd(WEEK, -2, z)
timestampadd(DAYOFYEAR, 400, ts)
timestampadd(MICROSECOND, 7, z)
timestampadd(DAY, 1, day)
timestampadd(QUARTER, 1, ts)
timestampadd(HOUR, i, ts)
""".strip("\n").split("\n")
"""The texts; Spark's own answer is what each is held to."""

_TARGETS = ("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "DOUBLE", "DECIMAL(5,1)")
_OF_TEXTS = (*_TARGETS, "FLOAT", "STRING", "DATE", "TIMESTAMP_NTZ", "TIMESTAMP")
CASES += [f"TRY_CAST({text} AS {to})" for text in ("s", "num") for to in _OF_TEXTS]
CASES += [f"TRY_CAST({n} AS {to})" for n in ("si", "l", "d", "w") for to in _TARGETS]
