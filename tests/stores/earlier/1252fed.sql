CREATE SCHEMA aggregate;
CREATE SCHEMA first_n;
CREATE SCHEMA "join";
CREATE SCHEMA "window";
CREATE TABLE aggregate._output_1_ (
    shop text COLLATE pg_catalog."C",
    sales bigint,
    cents bigint,
    dearest numeric(10,2),
    _count_ bigint
);
CREATE TABLE aggregate._registers_ (
    register text NOT NULL,
    "table" text NOT NULL,
    view text,
    described json NOT NULL,
    columns json NOT NULL
);
CREATE TABLE aggregate._store_ (
    format integer NOT NULL,
    fingerprint text NOT NULL,
    step bigint NOT NULL,
    now text,
    offsets json NOT NULL,
    outputs json NOT NULL,
    outputs_kept boolean NOT NULL,
    settings json NOT NULL
);
CREATE TABLE aggregate."totals.aggregate.accumulate by _key_" (
    _key_hash_ bigint DEFAULT 0 NOT NULL,
    _rest_hash_ bigint DEFAULT 0 NOT NULL,
    _key_ text COLLATE pg_catalog."C",
    _rows_ bigint,
    _sum__1_ numeric(38,0),
    _sum__2_ numeric(38,0),
    _sum__3_ numeric(38,0)
);
COMMENT ON TABLE aggregate."totals.aggregate.accumulate by _key_" IS 'register ''totals.aggregate.accumulate by _key_'': the sum of map·accumulate [tuple(_1=shop, _2=cents) · tuple(_1=1, _2=_2, _3=known(_2)) by _1] ca86fdb8a53a350c by _key_';
CREATE TABLE aggregate."totals.aggregate.map_2 by _1, bucket of 256" (
    _key_hash_ bigint DEFAULT 0 NOT NULL,
    _rest_hash_ bigint DEFAULT 0 NOT NULL,
    _1 text COLLATE pg_catalog."C",
    _2 numeric(10,2),
    _key_2_ bigint,
    _count_ bigint
);
COMMENT ON TABLE aggregate."totals.aggregate.map_2 by _1, bucket of 256" IS 'register ''totals.aggregate.map_2 by _1, bucket of 256'': the sum of map [tuple(_1=shop, _2=price)] 7c6962bc6d8dfb48 by _1, bucket of 256';
CREATE TABLE aggregate."totals.aggregate.top_of_256 by _1" (
    _key_hash_ bigint DEFAULT 0 NOT NULL,
    _rest_hash_ bigint DEFAULT 0 NOT NULL,
    _1 text COLLATE pg_catalog."C",
    _2 numeric(10,2),
    _count_ bigint
);
COMMENT ON TABLE aggregate."totals.aggregate.top_of_256 by _1" IS 'register ''totals.aggregate.top_of_256 by _1'': the sum of haitch [top 1 by _2 desc of each (_1, bucket of 256)] 2a2c05ad812e4876 by _1';
CREATE TABLE first_n._output_1_ (
    id bigint,
    shop text COLLATE pg_catalog."C",
    cents bigint,
    price numeric(10,2),
    day date,
    tags jsonb,
    _count_ bigint
);
CREATE TABLE first_n._registers_ (
    register text NOT NULL,
    "table" text NOT NULL,
    view text,
    described json NOT NULL,
    columns json NOT NULL
);
CREATE TABLE first_n._store_ (
    format integer NOT NULL,
    fingerprint text NOT NULL,
    step bigint NOT NULL,
    now text,
    offsets json NOT NULL,
    outputs json NOT NULL,
    outputs_kept boolean NOT NULL,
    settings json NOT NULL
);
CREATE TABLE first_n."dearest.first_n.differentiated_of_256 by shop" (
    _key_hash_ bigint DEFAULT 0 NOT NULL,
    _rest_hash_ bigint DEFAULT 0 NOT NULL,
    id bigint,
    shop text COLLATE pg_catalog."C",
    cents bigint,
    price numeric(10,2),
    day date,
    tags jsonb,
    _count_ bigint
);
COMMENT ON TABLE first_n."dearest.first_n.differentiated_of_256 by shop" IS 'register ''dearest.first_n.differentiated_of_256 by shop'': the sum of haitch [top 1 by price desc of each (shop, bucket of 256)] 734c7563f1762681 by shop';
CREATE TABLE first_n."dearest.sales by shop, bucket of 256" (
    _key_hash_ bigint DEFAULT 0 NOT NULL,
    _rest_hash_ bigint DEFAULT 0 NOT NULL,
    id bigint,
    shop text COLLATE pg_catalog."C",
    cents bigint,
    price numeric(10,2),
    day date,
    tags jsonb,
    _key_2_ bigint,
    _count_ bigint
);
COMMENT ON TABLE first_n."dearest.sales by shop, bucket of 256" IS 'register ''dearest.sales by shop, bucket of 256'': the sum of input a3f60e352f22328d by shop, bucket of 256';
CREATE TABLE "join"._output_1_ (
    "left.id" bigint,
    "left.shop" text COLLATE pg_catalog."C",
    "left.cents" bigint,
    "left.price" numeric(10,2),
    "left.day" date,
    "left.tags" jsonb,
    "right.name" text COLLATE pg_catalog."C",
    "right.city" text COLLATE pg_catalog."C",
    _count_ bigint
);
CREATE TABLE "join"._registers_ (
    register text NOT NULL,
    "table" text NOT NULL,
    view text,
    described json NOT NULL,
    columns json NOT NULL
);
CREATE TABLE "join"._store_ (
    format integer NOT NULL,
    fingerprint text NOT NULL,
    step bigint NOT NULL,
    now text,
    offsets json NOT NULL,
    outputs json NOT NULL,
    outputs_kept boolean NOT NULL,
    settings json NOT NULL
);
CREATE TABLE "join"."joined.sales by shop" (
    _key_hash_ bigint DEFAULT 0 NOT NULL,
    _rest_hash_ bigint DEFAULT 0 NOT NULL,
    id bigint,
    shop text COLLATE pg_catalog."C",
    cents bigint,
    price numeric(10,2),
    day date,
    tags jsonb,
    _count_ bigint
);
COMMENT ON TABLE "join"."joined.sales by shop" IS 'register ''joined.sales by shop'': the sum of input a3f60e352f22328d by shop';
CREATE TABLE "join"."joined.shops by name" (
    _key_hash_ bigint DEFAULT 0 NOT NULL,
    _rest_hash_ bigint DEFAULT 0 NOT NULL,
    name text COLLATE pg_catalog."C",
    city text COLLATE pg_catalog."C",
    _count_ bigint
);
COMMENT ON TABLE "join"."joined.shops by name" IS 'register ''joined.shops by name'': the sum of input 6ade1ed8ef76d3b2 by name';
CREATE TABLE "window"._output_1_ (
    shop text COLLATE pg_catalog."C",
    id bigint,
    day date,
    previous bigint,
    _count_ bigint
);
CREATE TABLE "window"._registers_ (
    register text NOT NULL,
    "table" text NOT NULL,
    view text,
    described json NOT NULL,
    columns json NOT NULL
);
CREATE TABLE "window"._store_ (
    format integer NOT NULL,
    fingerprint text NOT NULL,
    step bigint NOT NULL,
    now text,
    offsets json NOT NULL,
    outputs json NOT NULL,
    outputs_kept boolean NOT NULL,
    settings json NOT NULL
);
CREATE TABLE "window"."before.sales by shop" (
    _key_hash_ bigint DEFAULT 0 NOT NULL,
    _place_ bigint DEFAULT 0 NOT NULL,
    _rest_hash_ bigint DEFAULT 0 NOT NULL,
    id bigint,
    shop text COLLATE pg_catalog."C",
    cents bigint,
    price numeric(10,2),
    day date,
    tags jsonb,
    _count_ bigint
);
COMMENT ON TABLE "window"."before.sales by shop" IS 'register ''before.sales by shop'': the sum of input a3f60e352f22328d by shop';
INSERT INTO aggregate._output_1_ VALUES ('A', 2, 250, 9.99, 1);
INSERT INTO aggregate._output_1_ VALUES ('␀0', 1, 7, -0.01, 1);
INSERT INTO aggregate._output_1_ VALUES ('A', 3, 250, 9.99, -1);
INSERT INTO aggregate._registers_ VALUES ('totals.aggregate.map_2 by _1, bucket of 256', 'totals.aggregate.map_2 by _1, bucket of 256', NULL, '{"columns": [["_1", "str"], ["_2", "Decimal(10, 2)"], ["_key_2_", "int"]], "diffs": [["_count_", "int"]], "key": ["_1", "_key_2_"], "sums": "map [tuple(_1=shop, _2=price)] 7c6962bc6d8dfb48 by _1, bucket of 256"}', '[["_1", "_1", "text"], ["_2", "_2", "numeric(10,2)"], ["_key_2_", "_key_2_", "bigint"], ["_count_", "_count_", "bigint"]]');
INSERT INTO aggregate._registers_ VALUES ('totals.aggregate.accumulate by _key_', 'totals.aggregate.accumulate by _key_', NULL, '{"columns": [["_key_", "str"]], "diffs": [["_rows_", "int"], ["_sum__1_", "Decimal(38, 0)"], ["_sum__2_", "Decimal(38, 0)"], ["_sum__3_", "Decimal(38, 0)"]], "key": ["_key_"], "sums": "map\u00b7accumulate [tuple(_1=shop, _2=cents) \u00b7 tuple(_1=1, _2=_2, _3=known(_2)) by _1] ca86fdb8a53a350c by _key_"}', '[["_key_", "_key_", "text"], ["_rows_", "_rows_", "bigint"], ["_sum__1_", "_sum__1_", "numeric(38,0)"], ["_sum__2_", "_sum__2_", "numeric(38,0)"], ["_sum__3_", "_sum__3_", "numeric(38,0)"]]');
INSERT INTO aggregate._registers_ VALUES ('totals.aggregate.top_of_256 by _1', 'totals.aggregate.top_of_256 by _1', NULL, '{"columns": [["_1", "str"], ["_2", "Decimal(10, 2)"]], "diffs": [["_count_", "int"]], "key": ["_1"], "sums": "haitch [top 1 by _2 desc of each (_1, bucket of 256)] 2a2c05ad812e4876 by _1"}', '[["_1", "_1", "text"], ["_2", "_2", "numeric(10,2)"], ["_count_", "_count_", "bigint"]]');
INSERT INTO aggregate._store_ VALUES (3, '8a020fd786dcee50', 2, 'int 2', '{}', '[{"table": [["shop", "shop", "text"], ["sales", "sales", "bigint"], ["cents", "cents", "bigint"], ["dearest", "dearest", "numeric(10,2)"], ["_count_", "_count_", "bigint"]], "schema": {"columns": [["shop", "str"], ["sales", "int"], ["cents", {"optional": "int"}], ["dearest", "Decimal(10, 2)"]], "diffs": [["_count_", "int"]]}, "made_by": "differentiate e932d46ae03b8a9b"}]', true, '{}');
INSERT INTO aggregate."totals.aggregate.accumulate by _key_" VALUES (-1991003856445244853, 0, 'A', 2, 2, 250, 1);
INSERT INTO aggregate."totals.aggregate.accumulate by _key_" VALUES (-1847016445338605710, 0, '␀0', 1, 1, 7, 1);
INSERT INTO aggregate."totals.aggregate.map_2 by _1, bucket of 256" VALUES (-6804909941697459974, -901108352979797907, 'A', 2.50, 69, 1);
INSERT INTO aggregate."totals.aggregate.map_2 by _1, bucket of 256" VALUES (-7256234329589271667, -8149895149100872861, '␀0', -0.01, 61, 1);
INSERT INTO aggregate."totals.aggregate.map_2 by _1, bucket of 256" VALUES (-3902556895712747317, -5162420100331886263, 'A', 9.99, 98, 1);
INSERT INTO aggregate."totals.aggregate.top_of_256 by _1" VALUES (-1991003856445244853, -901108352979797907, 'A', 2.50, 1);
INSERT INTO aggregate."totals.aggregate.top_of_256 by _1" VALUES (-1991003856445244853, -5162420100331886263, 'A', 9.99, 1);
INSERT INTO aggregate."totals.aggregate.top_of_256 by _1" VALUES (-1847016445338605710, -8149895149100872861, '␀0', -0.01, 1);
INSERT INTO first_n._output_1_ VALUES (3, '␀0', 7, -0.01, '2024-03-01', '[""]', 1);
INSERT INTO first_n._registers_ VALUES ('dearest.sales by shop, bucket of 256', 'dearest.sales by shop, bucket of 256', NULL, '{"columns": [["id", "int"], ["shop", "str"], ["cents", {"optional": "int"}], ["price", "Decimal(10, 2)"], ["day", "date"], ["tags", {"list": "str"}], ["_key_2_", "int"]], "diffs": [["_count_", "int"]], "key": ["shop", "_key_2_"], "sums": "input a3f60e352f22328d by shop, bucket of 256"}', '[["id", "id", "bigint"], ["shop", "shop", "text"], ["cents", "cents", "bigint"], ["price", "price", "numeric(10,2)"], ["day", "day", "date"], ["tags", "tags", "jsonb"], ["_key_2_", "_key_2_", "bigint"], ["_count_", "_count_", "bigint"]]');
INSERT INTO first_n._registers_ VALUES ('dearest.first_n.differentiated_of_256 by shop', 'dearest.first_n.differentiated_of_256 by shop', NULL, '{"columns": [["id", "int"], ["shop", "str"], ["cents", {"optional": "int"}], ["price", "Decimal(10, 2)"], ["day", "date"], ["tags", {"list": "str"}]], "diffs": [["_count_", "int"]], "key": ["shop"], "sums": "haitch [top 1 by price desc of each (shop, bucket of 256)] 734c7563f1762681 by shop"}', '[["id", "id", "bigint"], ["shop", "shop", "text"], ["cents", "cents", "bigint"], ["price", "price", "numeric(10,2)"], ["day", "day", "date"], ["tags", "tags", "jsonb"], ["_count_", "_count_", "bigint"]]');
INSERT INTO first_n._store_ VALUES (3, '45732ebb0e6f2d20', 2, 'int 2', '{}', '[{"table": [["id", "id", "bigint"], ["shop", "shop", "text"], ["cents", "cents", "bigint"], ["price", "price", "numeric(10,2)"], ["day", "day", "date"], ["tags", "tags", "jsonb"], ["_count_", "_count_", "bigint"]], "schema": {"columns": [["id", "int"], ["shop", "str"], ["cents", {"optional": "int"}], ["price", "Decimal(10, 2)"], ["day", "date"], ["tags", {"list": "str"}]], "diffs": [["_count_", "int"]]}, "made_by": "differentiate cddeeb0347a5b3d0"}]', true, '{}');
INSERT INTO first_n."dearest.first_n.differentiated_of_256 by shop" VALUES (-1991003856445244853, -8908914036297453506, 1, 'A', 250, 2.50, '2024-02-28', '["tea", "␀␀"]', 1);
INSERT INTO first_n."dearest.first_n.differentiated_of_256 by shop" VALUES (-1991003856445244853, -6116546540844547544, 2, 'A', NULL, 9.99, '2024-02-29', '[]', 1);
INSERT INTO first_n."dearest.first_n.differentiated_of_256 by shop" VALUES (-1847016445338605710, -4466022591747718955, 3, '␀0', 7, -0.01, '2024-03-01', '[""]', 1);
INSERT INTO first_n."dearest.sales by shop, bucket of 256" VALUES (-6413963712313985021, -8908914036297453506, 1, 'A', 250, 2.50, '2024-02-28', '["tea", "␀␀"]', 95, 1);
INSERT INTO first_n."dearest.sales by shop, bucket of 256" VALUES (5790477954846657377, -4466022591747718955, 3, '␀0', 7, -0.01, '2024-03-01', '[""]', 9, 1);
INSERT INTO first_n."dearest.sales by shop, bucket of 256" VALUES (8169979604173414510, -6116546540844547544, 2, 'A', NULL, 9.99, '2024-02-29', '[]', 0, 1);
INSERT INTO "join"._output_1_ VALUES (2, 'A', NULL, 9.99, '2024-02-29', '[]', 'A', 'Łódź', -1);
INSERT INTO "join"._output_1_ VALUES (3, '␀0', 7, -0.01, '2024-03-01', '[""]', '␀0', NULL, 1);
INSERT INTO "join"._registers_ VALUES ('joined.sales by shop', 'joined.sales by shop', NULL, '{"columns": [["id", "int"], ["shop", "str"], ["cents", {"optional": "int"}], ["price", "Decimal(10, 2)"], ["day", "date"], ["tags", {"list": "str"}]], "diffs": [["_count_", "int"]], "key": ["shop"], "sums": "input a3f60e352f22328d by shop"}', '[["id", "id", "bigint"], ["shop", "shop", "text"], ["cents", "cents", "bigint"], ["price", "price", "numeric(10,2)"], ["day", "day", "date"], ["tags", "tags", "jsonb"], ["_count_", "_count_", "bigint"]]');
INSERT INTO "join"._registers_ VALUES ('joined.shops by name', 'joined.shops by name', NULL, '{"columns": [["name", "str"], ["city", {"optional": "str"}]], "diffs": [["_count_", "int"]], "key": ["name"], "sums": "input 6ade1ed8ef76d3b2 by name"}', '[["name", "name", "text"], ["city", "city", "text"], ["_count_", "_count_", "bigint"]]');
INSERT INTO "join"._store_ VALUES (3, '4071127c20d1ca02', 2, 'int 2', '{}', '[{"table": [["left.id", "left.id", "bigint"], ["left.shop", "left.shop", "text"], ["left.cents", "left.cents", "bigint"], ["left.price", "left.price", "numeric(10,2)"], ["left.day", "left.day", "date"], ["left.tags", "left.tags", "jsonb"], ["right.name", "right.name", "text"], ["right.city", "right.city", "text"], ["_count_", "_count_", "bigint"]], "schema": {"columns": [["left", {"row": [["id", "int"], ["shop", "str"], ["cents", {"optional": "int"}], ["price", "Decimal(10, 2)"], ["day", "date"], ["tags", {"list": "str"}]]}], ["right", {"row": [["name", "str"], ["city", {"optional": "str"}]]}]], "diffs": [["_count_", "int"]]}, "made_by": "add c4fb4d8cbd2be048"}]', true, '{}');
INSERT INTO "join"."joined.sales by shop" VALUES (-1991003856445244853, -8908914036297453506, 1, 'A', 250, 2.50, '2024-02-28', '["tea", "␀␀"]', 1);
INSERT INTO "join"."joined.sales by shop" VALUES (-1991003856445244853, -6116546540844547544, 2, 'A', NULL, 9.99, '2024-02-29', '[]', 1);
INSERT INTO "join"."joined.sales by shop" VALUES (-1847016445338605710, -4466022591747718955, 3, '␀0', 7, -0.01, '2024-03-01', '[""]', 1);
INSERT INTO "join"."joined.shops by name" VALUES (-1991003856445244853, 5177812319812615069, 'A', 'Łódź', 1);
INSERT INTO "join"."joined.shops by name" VALUES (-1847016445338605710, -4548236405452200740, '␀0', NULL, 1);
INSERT INTO "window"._output_1_ VALUES ('␀0', 3, '2024-03-01', NULL, 1);
INSERT INTO "window"._output_1_ VALUES ('A', 2, '2024-02-29', NULL, -1);
INSERT INTO "window"._registers_ VALUES ('before.sales by shop', 'before.sales by shop', NULL, '{"columns": [["id", "int"], ["shop", "str"], ["cents", {"optional": "int"}], ["price", "Decimal(10, 2)"], ["day", "date"], ["tags", {"list": "str"}]], "diffs": [["_count_", "int"]], "key": ["shop"], "sums": "input a3f60e352f22328d by shop", "order": ["id", true, true]}', '[["id", "id", "bigint"], ["shop", "shop", "text"], ["cents", "cents", "bigint"], ["price", "price", "numeric(10,2)"], ["day", "day", "date"], ["tags", "tags", "jsonb"], ["_count_", "_count_", "bigint"]]');
INSERT INTO "window"._store_ VALUES (3, '6b3141a48f884ce3', 2, 'int 2', '{}', '[{"table": [["shop", "shop", "text"], ["id", "id", "bigint"], ["day", "day", "date"], ["previous", "previous", "bigint"], ["_count_", "_count_", "bigint"]], "schema": {"columns": [["shop", "str"], ["id", "int"], ["day", "date"], ["previous", {"optional": "int"}]], "diffs": [["_count_", "int"]]}, "made_by": "differentiate 9bb25fd408343965"}]', true, '{}');
INSERT INTO "window"."before.sales by shop" VALUES (-1991003856445244853, 1, -8908914036297453506, 1, 'A', 250, 2.50, '2024-02-28', '["tea", "␀␀"]', 1);
INSERT INTO "window"."before.sales by shop" VALUES (-1991003856445244853, 2, -6116546540844547544, 2, 'A', NULL, 9.99, '2024-02-29', '[]', 1);
INSERT INTO "window"."before.sales by shop" VALUES (-1847016445338605710, 3, -4466022591747718955, 3, '␀0', 7, -0.01, '2024-03-01', '[""]', 1);
ALTER TABLE ONLY aggregate._registers_
    ADD CONSTRAINT _registers__pkey PRIMARY KEY (register);
ALTER TABLE ONLY first_n._registers_
    ADD CONSTRAINT _registers__pkey PRIMARY KEY (register);
ALTER TABLE ONLY "join"._registers_
    ADD CONSTRAINT _registers__pkey PRIMARY KEY (register);
ALTER TABLE ONLY "window"._registers_
    ADD CONSTRAINT _registers__pkey PRIMARY KEY (register);
CREATE INDEX "totals.aggregate.accumulate by _key_~628b2a88 key" ON aggregate."totals.aggregate.accumulate by _key_" USING btree (_key_hash_, _rest_hash_);
CREATE INDEX "totals.aggregate.map_2 by _1, bucket of 256~89a3e572 key" ON aggregate."totals.aggregate.map_2 by _1, bucket of 256" USING btree (_key_hash_, _rest_hash_);
CREATE INDEX "totals.aggregate.top_of_256 by _1~055a28a7 key" ON aggregate."totals.aggregate.top_of_256 by _1" USING btree (_key_hash_, _rest_hash_);
CREATE INDEX "dearest.first_n.differentiated_of_256 by shop~e137007a key" ON first_n."dearest.first_n.differentiated_of_256 by shop" USING btree (_key_hash_, _rest_hash_);
CREATE INDEX "dearest.sales by shop, bucket of 256~949848fb key" ON first_n."dearest.sales by shop, bucket of 256" USING btree (_key_hash_, _rest_hash_);
CREATE INDEX "joined.sales by shop~9bcc5a01 key" ON "join"."joined.sales by shop" USING btree (_key_hash_, _rest_hash_);
CREATE INDEX "joined.shops by name~db85731e key" ON "join"."joined.shops by name" USING btree (_key_hash_, _rest_hash_);
CREATE INDEX "before.sales by shop~6a0fbc52 key" ON "window"."before.sales by shop" USING btree (_key_hash_, _place_, _rest_hash_);
