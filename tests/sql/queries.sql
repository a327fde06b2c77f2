-- Views in SQL, a feature each, over the tables of tests/sql/shop.py. A line `--- name` begins one.

--- all
SELECT * FROM orders

--- where
SELECT id, amount FROM orders WHERE qty > 1 AND (note = 'a' OR note IS NULL)

--- case
SELECT id, CASE WHEN qty > 1 THEN 'many' WHEN qty = 1 THEN 'one' END AS n FROM orders

--- alias of an alias
SELECT qty + 1 AS a, a * 2 AS b FROM orders

--- count
SELECT count(*), count(qty), count(DISTINCT qty) FROM orders

--- of an empty table
SELECT count(*), sum(qty), max(note) FROM orders WHERE id > 1000

--- group
SELECT customer, sum(amount) AS total, avg(qty) AS mean FROM orders GROUP BY customer

--- group by position
SELECT customer, placed, count(*) AS n FROM orders GROUP BY 1, 2

--- group by alias
SELECT qty % 2 AS odd, count(*) AS n FROM orders GROUP BY odd

--- group by all
SELECT customer, note, min(qty) AS least FROM orders GROUP BY ALL

--- group without aggregate
SELECT customer FROM orders GROUP BY customer

--- expression of a key
SELECT qty + 1 AS q, count(*) AS n FROM orders GROUP BY qty + 1

--- key within an expression
SELECT (qty + 1) * 2 AS q, sum(id) AS s FROM orders GROUP BY qty + 1

--- having
SELECT customer, count(*) AS n FROM orders GROUP BY customer HAVING count(*) > 3

--- having alias
SELECT customer, count(*) AS n FROM orders GROUP BY customer HAVING n > 3

--- having without group
SELECT sum(qty) AS s FROM orders HAVING count(*) > 10

--- filter
SELECT customer, count(*) FILTER (WHERE qty > 1) AS n, sum(amount) FILTER (WHERE note = 'a') AS s
FROM orders GROUP BY customer

--- distinct
SELECT DISTINCT customer, note FROM orders

--- distinct of groups
SELECT DISTINCT count(*) AS n FROM orders GROUP BY customer

--- rollup
SELECT customer, note, count(*) AS n, grouping(note) AS g FROM orders GROUP BY ROLLUP (customer,
note)

--- cube
SELECT customer, note, sum(qty) AS s, grouping_id() AS g FROM orders GROUP BY CUBE (customer,
note)

--- grouping sets
SELECT customer, note, count(*) AS n FROM orders GROUP BY GROUPING SETS ((customer, note), (note),
())

--- equal grouping sets
SELECT customer, note, count(*) AS n, grouping_id() AS g FROM orders GROUP BY GROUPING SETS
((customer, note), (note, customer), (note), (), ())

--- a key twice in a rollup
SELECT customer, sum(qty) AS s FROM orders GROUP BY ROLLUP (customer, customer)

--- covariances and regressions
SELECT customer, covar_pop(qty, amount) AS a, covar_samp(qty, id) AS b, regr_slope(id, qty) AS c,
regr_intercept(id, qty) AS d, regr_r2(id, qty) AS e, regr_count(id, qty) AS f, regr_avgx(id, qty)
AS g, regr_avgy(id, qty) AS h, regr_sxx(id, qty) AS i, regr_syy(id, qty) AS j, regr_sxy(id, qty)
AS k FROM orders GROUP BY customer

--- regressions of an empty table
SELECT covar_pop(qty, id) AS a, covar_samp(qty, id) AS b, regr_slope(id, qty) AS c, regr_count(id,
qty) AS f, regr_sxx(id, qty) AS i FROM orders WHERE id > 1000

--- shapes
SELECT customer, round(skewness(qty), 6) + 0 AS a, round(kurtosis(id), 6) AS b,
round(kurtosis(amount), 6) AS c FROM orders GROUP BY customer

--- bits
SELECT customer, bit_and(qty) AS a, bit_or(id) AS b, bit_xor(id) AS c, bit_or(DISTINCT qty) AS d
FROM orders GROUP BY customer

--- distinct values
SELECT customer, avg(DISTINCT qty) AS a, sum(DISTINCT qty) AS b, avg(DISTINCT amount) AS c,
array_sort(collect_set(note)) AS d, array_sort(array_agg(DISTINCT qty)) AS e FROM orders GROUP BY
customer

--- distinct values, joined
SELECT customer, listagg(DISTINCT note, ',') WITHIN GROUP (ORDER BY note DESC) AS l FROM orders
GROUP BY customer

--- aggregates of conditions
SELECT customer, any_value(customer) AS a, count_if(qty > 1) AS b, every(qty > 0) AS c, some(qty >
1) AS d, bool_or(note = 'a') AS e, max_by(id, id) AS f, median(qty) AS g FROM orders GROUP BY
customer

--- a key beside a rollup
SELECT qty, customer, count(*) AS n FROM orders GROUP BY qty, ROLLUP (customer)

--- join
SELECT o.id, c.name FROM orders o JOIN customers c ON o.customer = c.customer

--- join using
SELECT * FROM orders JOIN customers USING (customer)

--- natural join
SELECT * FROM orders NATURAL JOIN customers

--- comma join
SELECT o.id, c.name, i.product FROM orders o, customers c, items i WHERE o.customer = c.customer
AND i.order_id = o.id AND c.country = 'AT'

--- left join
SELECT o.id, c.name FROM orders o LEFT JOIN customers c ON o.customer = c.customer AND c.score >
0.75

--- left join, where
SELECT o.id, c.name FROM orders o LEFT JOIN customers c ON o.customer = c.customer WHERE c.name IS
NULL

--- right join
SELECT o.id, c.* FROM orders o RIGHT JOIN customers c ON o.customer = c.customer

--- full join
SELECT o.id, c.name FROM orders o FULL JOIN customers c ON o.customer = c.customer

--- right join using
SELECT customer, o.id, c.name FROM orders o RIGHT JOIN customers c USING (customer)

--- full join using
SELECT customer, o.id, c.name FROM orders o FULL JOIN customers c USING (customer)

--- join by inequality
SELECT o.id, c.name FROM orders o JOIN customers c ON o.qty > c.score

--- left join by inequality
SELECT o.id, c.name FROM orders o LEFT JOIN customers c ON o.qty > c.score

--- right join by inequality
SELECT o.id, c.name FROM orders o RIGHT JOIN customers c ON o.qty > c.score

--- cross join
SELECT o.id, c.name FROM orders o CROSS JOIN customers c

--- semi join
SELECT * FROM orders o LEFT SEMI JOIN customers c ON o.customer = c.customer AND c.score > o.qty

--- anti join
SELECT * FROM orders o LEFT ANTI JOIN customers c ON o.customer = c.customer

--- self join
SELECT a.id, b.id AS other FROM orders a JOIN orders b ON a.customer = b.customer AND a.id < b.id

--- keys of other types
SELECT o.id, i.price FROM orders o JOIN items i ON o.qty = i.price

--- null-safe join
SELECT a.id, b.id AS other FROM orders a JOIN orders b ON a.note <=> b.note AND a.qty = b.qty

--- union all
SELECT customer FROM orders UNION ALL SELECT customer FROM customers

--- union
SELECT customer, note FROM orders UNION SELECT customer, name FROM customers

--- union of types
SELECT qty AS x FROM orders UNION ALL SELECT price FROM items

--- intersect
SELECT customer FROM orders INTERSECT SELECT customer FROM customers

--- intersect all
SELECT customer FROM orders INTERSECT ALL SELECT customer FROM customers

--- except
SELECT customer FROM orders EXCEPT SELECT customer FROM customers

--- except all
SELECT customer FROM orders EXCEPT ALL SELECT customer FROM customers

--- with
WITH big AS (SELECT * FROM orders WHERE qty > 0), n (c, k) AS (SELECT customer, count(*) FROM big
GROUP BY 1) SELECT b.id, n.k FROM big b JOIN n ON b.customer = n.c

--- sub-query
SELECT x.c, x.n + 1 AS m FROM (SELECT customer AS c, count(*) AS n FROM orders GROUP BY 1) x

--- scalar sub-query
SELECT id FROM orders WHERE amount > (SELECT avg(amount) FROM orders)

--- scalar sub-query, selected
SELECT id, (SELECT max(score) FROM customers) AS best FROM orders

--- correlated
SELECT o.id FROM orders o WHERE o.qty > (SELECT avg(p.qty) FROM orders p WHERE p.customer =
o.customer)

--- correlated count
SELECT c.customer, (SELECT count(*) FROM orders o WHERE o.customer = c.customer) AS n FROM
customers c

--- correlated, an expression of it
SELECT c.customer, (SELECT coalesce(sum(o.qty), -1) + 1 FROM orders o WHERE o.customer =
c.customer) AS n FROM customers c

--- correlated by inequality
SELECT c.customer, (SELECT count(*) FROM orders o WHERE o.qty > c.score) AS n FROM customers c

--- correlated by two
SELECT o.id, (SELECT sum(i.price) FROM items i WHERE i.order_id = o.id AND i.price > o.qty) AS s
FROM orders o

--- exists
SELECT * FROM customers c WHERE EXISTS (SELECT 1 FROM orders o WHERE o.customer = c.customer AND
o.qty > 0)

--- not exists
SELECT * FROM customers c WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE o.customer = c.customer
AND o.qty > c.score)

--- exists, uncorrelated
SELECT * FROM customers WHERE EXISTS (SELECT 1 FROM orders WHERE qty = 5)

--- exists of groups
SELECT * FROM customers c WHERE EXISTS (SELECT o.note FROM orders o WHERE o.customer = c.customer
GROUP BY o.note HAVING count(*) > 1)

--- exists or
SELECT c.customer FROM customers c WHERE c.score > 1 OR EXISTS (SELECT 1 FROM orders o WHERE
o.customer = c.customer)

--- in
SELECT * FROM orders WHERE customer IN (SELECT customer FROM customers WHERE score > 0.75)

--- not in
SELECT id FROM orders WHERE customer NOT IN (SELECT customer FROM customers)

--- not in, with NULL
SELECT customer FROM customers WHERE customer NOT IN (SELECT customer FROM orders WHERE qty > 0)

--- not in, correlated
SELECT c.customer FROM customers c WHERE c.name NOT IN (SELECT o.note FROM orders o WHERE
o.customer = c.customer)

--- in or
SELECT id FROM orders WHERE qty = 5 OR customer IN (SELECT customer FROM customers WHERE country =
'AT')

--- in, selected
SELECT id, customer IN (SELECT o.qty FROM orders o) AS known FROM orders

--- not in or
SELECT id FROM orders WHERE qty = 5 OR customer NOT IN (SELECT customer FROM customers)

--- not in or, with NULL
SELECT customer FROM customers WHERE NOT (score > 5 OR customer IN (SELECT o.customer FROM orders
o))

--- not in, selected
SELECT id, customer NOT IN (SELECT o.qty FROM orders o WHERE o.qty > 0) AS unknown FROM orders

--- not in of two
SELECT id FROM orders WHERE (customer, note) NOT IN (SELECT customer, name FROM customers WHERE
score > 1)

--- in of two
SELECT id FROM orders WHERE (customer, note) IN (SELECT customer, name FROM customers)

--- in, of a query
SELECT o.id FROM orders o WHERE (SELECT min(i.order_id) FROM items i WHERE i.order_id >= o.id) IN
(SELECT customer FROM customers WHERE score > 0.5)

--- not in, of a query
SELECT o.id FROM orders o WHERE (SELECT max(i.order_id) FROM items i WHERE i.order_id < o.id) NOT IN
(SELECT customer FROM customers) AND o.qty > 1

--- max of small groups
SELECT /*+ GROUP_SIZE(20), BROADCAST(orders) */ customer, max(qty) AS most, min(note) AS note, count(*) AS n
FROM orders GROUP BY customer

--- nested exists
SELECT c.customer FROM customers c WHERE EXISTS (SELECT 1 FROM orders o WHERE o.customer =
c.customer AND EXISTS (SELECT 1 FROM items i WHERE i.order_id = o.id))

--- lateral
SELECT c.customer, l.n FROM customers c, LATERAL (SELECT count(*) AS n FROM orders o WHERE
o.customer = c.customer) l

--- lateral, first
SELECT c.customer, l.id FROM customers c JOIN LATERAL (SELECT o.id, o.qty, o.amount, o.note,
o.placed FROM orders o WHERE o.customer = c.customer ORDER BY o.id, o.qty, o.amount, o.note,
o.placed LIMIT 1) l

--- limit
SELECT id, qty FROM orders ORDER BY id DESC, qty LIMIT 3

--- limit with offset
SELECT id, qty FROM orders ORDER BY id, qty LIMIT 3 OFFSET 2

--- limit of groups
SELECT customer, count(*) AS n FROM orders GROUP BY customer ORDER BY n DESC, customer NULLS LAST
LIMIT 2

--- limit of distinct
SELECT DISTINCT note FROM orders ORDER BY note DESC LIMIT 2

--- limit of a union
SELECT customer FROM orders UNION SELECT customer FROM customers ORDER BY 1 LIMIT 2

--- order without limit
SELECT id FROM orders ORDER BY qty

--- row_number
SELECT * FROM (SELECT id, row_number() OVER (PARTITION BY customer ORDER BY id, amount, qty,
placed, note) AS n FROM orders) WHERE n <= 2

--- qualify
SELECT id, amount FROM orders QUALIFY rank() OVER (PARTITION BY customer ORDER BY amount DESC) = 1

--- window sum
SELECT id, sum(qty) OVER (PARTITION BY customer ORDER BY id) AS s, avg(qty) OVER (PARTITION BY
customer) AS m FROM orders

--- window of groups
SELECT customer, sum(count(*)) OVER (ORDER BY customer) AS running FROM orders GROUP BY customer

--- named window
SELECT id, max(qty) OVER w AS m, dense_rank() OVER w AS r FROM orders WINDOW w AS (PARTITION BY
note ORDER BY qty)

--- window with a range
SELECT id, count(*) OVER (ORDER BY placed RANGE BETWEEN INTERVAL '20' DAY PRECEDING AND CURRENT
ROW) AS n FROM orders

--- lag
SELECT DISTINCT customer, lag(customer, 1, 0) OVER (ORDER BY customer) AS before FROM (SELECT
DISTINCT customer FROM customers)

--- lag by nothing, by less and by a sum
SELECT id, lag(qty, 0) OVER (ORDER BY id) AS own, lag(qty, -1, 9) OVER (ORDER BY id) AS next,
lead(qty, 1 + 1) OVER (ORDER BY id) AS second, sum(qty) OVER (ORDER BY id ROWS BETWEEN 1 + 1
PRECEDING AND CURRENT ROW) AS three FROM (SELECT DISTINCT customer AS id, customer % 3 AS qty FROM
customers)

--- mode within a group
SELECT customer, mode() WITHIN GROUP (ORDER BY qty NULLS LAST) AS q, mode() WITHIN GROUP (ORDER BY note) AS n
FROM orders GROUP BY customer

--- group by a sub-query
SELECT CASE WHEN qty > (SELECT avg(qty) FROM orders) THEN 'many' ELSE 'few' END AS kind, count(*) AS n,
sum(qty) + (SELECT count(*) FROM customers) AS total FROM orders GROUP BY CASE WHEN qty > (SELECT
avg(qty) FROM orders) THEN 'many' ELSE 'few' END

--- pivot
SELECT * FROM (SELECT customer, note, qty FROM orders) PIVOT (sum(qty) AS s, count(*) AS n FOR
note IN ('a' AS a, 'b'))

--- unpivot
SELECT * FROM (SELECT id, qty, customer FROM orders) UNPIVOT (v FOR n IN (qty, customer AS c))

--- scalar sub-query of any row
SELECT id, (SELECT product FROM items WHERE price > 100) AS p FROM orders

--- correlated, any row
SELECT id, (SELECT DISTINCT c.customer FROM customers c WHERE c.customer = o.customer) AS c
FROM orders o

--- explode
SELECT k, x FROM lists LATERAL VIEW explode(xs) t AS x

--- posexplode, outer
SELECT k, p, x FROM lists LATERAL VIEW OUTER posexplode(xs) t AS p, x

--- explode, selected
SELECT k, explode(xs) AS x FROM lists

--- explode of a constant
SELECT o.id, t.x FROM orders o CROSS JOIN (SELECT explode(array('a', 'b')) AS x) t WHERE o.note = t.x

--- values
SELECT o.id, v.label FROM orders o JOIN (VALUES (1, 'one'), (2, NULL), (3.5, 'more')) AS v (n, label)
ON o.qty = v.n

--- select without from
SELECT id FROM orders UNION ALL SELECT 7

--- range
SELECT r.n, count(o.id) AS k FROM range(1, 4) r (n) LEFT JOIN orders o ON o.qty = r.n GROUP BY r.n

--- a unit of time
SELECT id, datediff(DAY, placed, DATE '2026-02-01') AS d FROM orders

--- aggregates
SELECT country, count_if(score > 1) AS c, max_by(customer, customer * 10) AS m, stddev(score) AS sd,
var_pop(score) AS v, bool_or(score > 2) AS b, median(score) AS md,
percentile_cont(0.25) WITHIN GROUP (ORDER BY score DESC) AS p,
corr(customer, score) AS r,
count(DISTINCT name, score) AS d, sum(DISTINCT customer) AS s
FROM customers GROUP BY country

--- windows of many kinds
SELECT id, lead(qty, 2) OVER w AS a, first_value(note) OVER w AS f, ntile(3) OVER w AS t,
count(*) FILTER (WHERE qty > 1) OVER (PARTITION BY customer) AS c,
max(qty) OVER (PARTITION BY note ORDER BY id, qty, amount, placed, customer ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS m,
percent_rank() OVER (PARTITION BY note ORDER BY qty) AS p
FROM (SELECT DISTINCT * FROM orders) WINDOW w AS (PARTITION BY customer ORDER BY id, qty, amount, placed, note)

--- digits of an int
SELECT id, amount / qty AS q, amount * qty + 1 AS s FROM orders WHERE qty > 0

--- listagg
SELECT country, listagg(name, ',') WITHIN GROUP (ORDER BY name) AS l FROM customers GROUP BY country

--- no match, by a count
SELECT c.customer FROM customers c WHERE (SELECT count(*) FROM orders o WHERE o.customer =
c.customer AND o.qty > 0) = 0

--- values of sub-queries within CASE
SELECT id, CASE WHEN qty > (SELECT avg(qty) FROM orders) THEN (SELECT min(name) FROM customers)
ELSE note END AS x FROM orders

--- HAVING with a sub-query
SELECT customer, count(*) AS n FROM orders GROUP BY customer HAVING count(*) > (SELECT count(*) /
5 FROM orders)

--- HAVING with EXISTS
SELECT customer, sum(qty) AS s FROM orders o GROUP BY customer HAVING EXISTS (SELECT 1 FROM
customers c WHERE c.customer = o.customer)

--- IN of groups, correlated in HAVING
SELECT c.name FROM customers c WHERE c.customer IN (SELECT o.customer FROM orders o GROUP BY
o.customer HAVING sum(o.qty) > c.score)

--- lateral without rows
SELECT c.customer, x.m FROM customers c LEFT JOIN LATERAL (SELECT max(o.qty) AS m FROM orders o
WHERE o.customer = c.customer HAVING count(*) > 1) x ON TRUE

--- lateral with a union
SELECT c.customer, x.v FROM customers c, LATERAL (SELECT o.qty AS v FROM orders o WHERE o.customer
= c.customer UNION ALL SELECT length(c.name)) x

--- lateral with a window
SELECT c.customer, x.id, x.r FROM customers c, LATERAL (SELECT o.id, rank() OVER (ORDER BY o.id)
AS r FROM orders o WHERE o.customer = c.customer) x

--- two full joins with conditions
SELECT o.id, c.name, i.product FROM orders o FULL JOIN customers c ON o.customer = c.customer AND
o.qty > c.score FULL JOIN items i ON i.order_id = o.id

--- three tables, one USING
SELECT * FROM orders JOIN customers USING (customer) JOIN (SELECT customer, count(*) AS k FROM
orders GROUP BY 1) x USING (customer)

--- a name of WITH within WITH
WITH a AS (SELECT 1 AS x FROM orders), b AS (WITH a AS (SELECT customer AS x FROM customers)
SELECT * FROM a) SELECT * FROM b UNION ALL SELECT * FROM a

--- IN with NULL
SELECT id FROM orders WHERE qty IN (1, NULL)

--- NOT IN with NULL
SELECT id FROM orders WHERE qty NOT IN (1, NULL)

--- correlated by OR
SELECT a.id FROM orders a WHERE a.amount = (SELECT max(b.amount) FROM orders b WHERE b.note =
a.note OR b.note IS NULL)

--- EXISTS within an aggregate
SELECT sum(CASE WHEN EXISTS (SELECT 1 FROM customers c WHERE c.customer = o.customer) THEN 1 ELSE
0 END) AS n FROM orders o

--- EXCEPT of INTERSECT
SELECT customer FROM orders EXCEPT (SELECT customer FROM customers INTERSECT SELECT qty FROM
orders)

--- limits within a union
(SELECT customer FROM orders ORDER BY customer LIMIT 2) UNION ALL (SELECT customer FROM customers
ORDER BY customer DESC LIMIT 1)

--- a share of a window
SELECT id, sum(qty) OVER (PARTITION BY customer) * 1.0 / sum(qty) OVER () AS share FROM orders

--- a rank of sums
SELECT customer, sum(qty) AS s, rank() OVER (ORDER BY sum(qty) DESC) AS r FROM orders GROUP BY
customer

--- a rank within ROLLUP
SELECT customer, note, sum(qty) AS s, rank() OVER (PARTITION BY grouping(note) ORDER BY sum(qty)
DESC) AS r FROM orders GROUP BY ROLLUP (customer, note)

--- antijoin with conditions of both sides
SELECT c.customer FROM customers c LEFT ANTI JOIN orders o ON c.customer = o.customer AND o.qty >
1 AND c.score > 0.5

--- PIVOT with count
SELECT * FROM (SELECT customer, qty FROM orders) PIVOT (count(*) FOR qty IN (0, 1, 2))

--- higher-order functions
SELECT k, aggregate(xs, 0, (a, x) -> a + coalesce(x, 0)) AS s, transform(xs, x -> x + 1) AS t FROM
lists

--- full join of groups, null-safe
SELECT coalesce(a.customer, b.customer) AS c, a.n, b.n AS m FROM (SELECT customer, count(*) AS n
FROM orders GROUP BY 1) a FULL JOIN (SELECT customer, count(*) AS n FROM customers GROUP BY 1) b
ON a.customer <=> b.customer

--- HAVING with an alias that is a column too
SELECT customer, sum(qty) AS qty FROM orders GROUP BY customer HAVING qty > 3

--- structs
SELECT id, s.a, s.b.c AS c, s AS whole FROM (SELECT id, named_struct('a', qty, 'b', struct(note AS
c, amount)) AS s FROM orders) t

--- structs that may be NULL
SELECT id, s.a, coalesce(s, struct('none' AS a)) AS t FROM (SELECT id, CASE WHEN qty > 1 THEN
named_struct('a', note) END AS s FROM orders) t

--- the row of the greatest struct
SELECT customer, max(struct(amount, id)).id AS last, min(struct(amount, id)) AS first FROM orders
GROUP BY customer

--- structs as keys
SELECT a.s, count(*) AS n FROM (SELECT struct(qty, note) AS s FROM orders) a JOIN (SELECT
DISTINCT struct(qty, note) AS s FROM orders) b ON a.s = b.s GROUP BY a.s

--- structs of an outer join
SELECT c.customer, o.s.qty AS qty FROM customers c LEFT JOIN (SELECT customer, max(struct(id, qty))
AS s FROM orders GROUP BY customer) o ON o.customer = c.customer

--- lists of structs
SELECT customer, array_sort(collect_list(struct(qty, note))) AS l FROM orders GROUP BY customer

--- inline
SELECT k, p.i, p.v FROM lists LATERAL VIEW OUTER inline(transform(xs, (x, i) -> struct(i, x AS v)))
p AS i, v

--- inline in the select list
SELECT id, inline(array(struct(qty AS x, note AS y), struct(1 AS x, 'n' AS y))) FROM orders

--- inline of constants
SELECT * FROM inline(array(struct(1 AS a, 'x' AS b), struct(2 AS a, NULL AS b))) t JOIN customers c ON
c.customer = t.a

--- windows of windows
SELECT id, sum(row_number() OVER (ORDER BY id, qty, amount, note, placed, customer)) OVER (PARTITION
BY customer) AS s, rank() OVER (ORDER BY count(*) OVER (PARTITION BY qty)) AS r FROM orders

--- window of texts
SELECT customer, sum(substr('123', 1, qty)) OVER (PARTITION BY customer) AS s FROM orders
WHERE qty > 0

--- what the branches of OR share
SELECT o.id, c.name FROM orders o, customers c WHERE (o.customer = c.customer AND o.qty > 1 AND
c.country = 'AT') OR (o.customer = c.customer AND o.qty = 0 AND c.country IS NULL) OR (c.score > 1 AND
o.customer = c.customer AND o.note = 'a')

--- a branch of OR that is what they share
SELECT o.id, c.name FROM orders o JOIN customers c ON (o.customer = c.customer AND o.qty > 1) OR
(o.customer = c.customer)

--- branches of OR that say something of each table
SELECT o.id, c.name FROM orders o, customers c WHERE (o.qty = 1 AND c.country = 'AT') OR (o.qty = 2
AND c.country = 'DE')

--- a condition wants matches only
SELECT o.id, c.name FROM orders o FULL JOIN customers c ON o.customer = c.customer
WHERE c.score < o.qty

--- a condition does not want matches only
SELECT o.id FROM orders o LEFT JOIN customers c ON o.customer = c.customer
WHERE CASE WHEN c.name IS NULL THEN o.qty > 0 ELSE c.score > 0.5 END

--- correlated aggregate over what is asked for
SELECT o.id, o.amount FROM orders o, customers c WHERE o.customer = c.customer AND c.country = 'AT'
AND o.amount < (SELECT avg(p.amount) FROM orders p WHERE p.customer = c.customer)

--- correlated aggregate over the same joins
SELECT o.id, i.product FROM orders o, items i, customers c WHERE o.id = i.order_id AND o.customer =
c.customer AND c.country = 'DE' AND i.price = (SELECT max(j.price) FROM orders p, items j WHERE
p.id = j.order_id AND p.customer = c.customer)

--- sums of rows whose groups are joined
SELECT o.customer, count(*) AS n, count(i.price) AS known, sum(i.price) AS total, max(i.product) AS
most, max(o.qty) AS q FROM orders o JOIN items i ON i.order_id = o.id WHERE o.id IN (SELECT order_id
FROM items GROUP BY order_id HAVING sum(price) > 2) GROUP BY o.customer

--- not in of columns without null
SELECT qty FROM orders WHERE qty = 1 OR id NOT IN (SELECT customer FROM customers)

--- a total of the same join
SELECT customer, sum(price * qty) AS s FROM orders JOIN items ON id = order_id GROUP BY customer
HAVING sum(price * qty) > (SELECT sum(price * qty) / 4 FROM orders JOIN items ON id = order_id)

--- equal to a single row
SELECT c.name, o.id FROM customers c, orders o, (SELECT min(qty) AS q FROM orders) m
WHERE c.customer = o.customer AND m.q = o.qty

--- scalar sub-query in ON
SELECT a.id, b.id AS other FROM orders a JOIN orders b
ON a.customer = b.customer AND b.qty <= a.qty + (SELECT min(customer) FROM customers)

--- IN and EXISTS in ON of outer joins
SELECT o.id, c.name, i.product FROM orders o LEFT JOIN customers c
ON o.customer = c.customer AND c.customer IN (SELECT customer FROM orders WHERE qty > 1)
FULL JOIN items i ON i.order_id = o.id AND (o.qty IN (SELECT customer FROM customers)
OR EXISTS (SELECT 1 FROM lists WHERE k = i.order_id))

--- NOT IN in ON of an antijoin
SELECT o.id FROM orders o LEFT ANTI JOIN customers c
ON o.customer = c.customer AND c.customer NOT IN (SELECT qty FROM orders WHERE note = 'a')

--- a text as an instant, read twice
SELECT date_trunc('month', x) AS m, x FROM
(SELECT CAST(CAST(placed AS STRING) AS TIMESTAMP) AS x FROM orders)

--- stack
SELECT id, stack(2, 'qty', qty, 'customer', customer) AS (what, n) FROM orders

--- stack in LATERAL VIEW, with a value less
SELECT id, s.col0, s.col1 FROM orders LATERAL VIEW stack(2, note, qty, 'x') s

--- named arguments
SELECT id, mask(str => note, digitChar => '#', lowerChar => 'l') AS m,
explode(collection => array(qty, customer)) AS x FROM orders

--- WITH ROLLUP
SELECT customer, note, count(*) AS n, grouping(note) AS g FROM orders GROUP BY customer, note WITH ROLLUP

--- WITH CUBE
SELECT customer, note, sum(qty) AS n FROM orders GROUP BY customer, note WITH CUBE

--- keys, and GROUPING SETS of them
SELECT customer, note, count(*) AS n FROM orders GROUP BY customer, note GROUPING SETS ((customer), (note))

--- a key beside GROUPING SETS
SELECT customer, note, count(*) AS n FROM orders GROUP BY customer, GROUPING SETS ((customer), (note))

--- columns as arguments
SELECT count(*, qty) AS n, max(struct(o.*)).id AS last FROM orders o

--- all columns as an array
SELECT array(*) AS all FROM (SELECT qty, customer FROM orders)

--- order by all
SELECT customer, qty FROM orders ORDER BY ALL DESC LIMIT 3

--- LATERAL with a function
SELECT k, x, l.pos FROM lists, LATERAL explode(xs) AS e(x) JOIN LATERAL posexplode(array(x, k)) AS l

--- range of partitions
SELECT * FROM range(1, 9, 3, 2) AS r(n)

--- first of VALUES
WITH t(n) AS (VALUES (3), (1), (2) ORDER BY 1 LIMIT 2) SELECT * FROM t

--- TABLE
TABLE items

--- TABLE in a set
TABLE customers EXCEPT (TABLE customers ORDER BY customer, name, country, score LIMIT 2)

--- TABLE after WITH
WITH large AS (SELECT id, qty FROM orders WHERE qty > 1) TABLE large

--- identifier
SELECT identifier('customer'), identifier('o.qty') AS n FROM identifier('orders') o

--- identifier of a function
SELECT identifier('upper')(country) AS c, count(*) AS n FROM customers GROUP BY identifier('country')

--- VALUES with a limit
SELECT o.id, v.name FROM orders o JOIN (VALUES (1, 'a'), (2, 'b'), (5, 'c') AS w (n, name) ORDER BY n DESC LIMIT 2) v ON o.qty = v.n

--- IGNORE NULLS in the call
SELECT customer, max(qty) AS m, any_value(note IGNORE NULLS) IS NULL AS n FROM orders GROUP BY customer

--- LIMIT ALL
SELECT id, qty FROM orders LIMIT ALL
