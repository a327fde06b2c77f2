CREATE SCHEMA aggregate;
CREATE SCHEMA first_n;
CREATE SCHEMA "join";
CREATE SCHEMA "window";
CREATE TABLE aggregate._circuit_ (
    circuit text NOT NULL
);
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
COMMENT ON TABLE aggregate."totals.aggregate.accumulate by _key_" IS 'register ''totals.aggregate.accumulate by _key_'': the sum of accumulate [tuple(_1=1, _2=_2, _3=known(_2)) by _1] ac2394e15a12677c by _key_';
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
CREATE TABLE first_n._circuit_ (
    circuit text NOT NULL
);
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
CREATE TABLE "join"._circuit_ (
    circuit text NOT NULL
);
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
CREATE TABLE "window"._circuit_ (
    circuit text NOT NULL
);
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
INSERT INTO aggregate._circuit_ VALUES ('{"circuit": {"format": 1, "digest": "c3ba3a6c63694e49", "name": "totals", "inputs": [["sales", 0]], "entries": [0], "vertices": [{"operator": {"is": "Input", "number": 0, "label": "sales", "type": {"is": "ZSetType", "row": {"is": "Struct", "name": "Sale", "fields": [["id", {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}], ["shop", {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}], ["cents", {"is": "Optional", "inner": {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}}], ["price", {"is": "Atom", "name": "Decimal", "python": {"class": "decimal:Decimal", "kind": "row"}, "precision": 10, "scale": 2}], ["day", {"is": "Atom", "name": "date", "python": {"class": "datetime:date", "kind": "row"}, "precision": 0, "scale": 0}], ["tags", {"is": "ListOf", "inner": {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}}]], "python": {"class": "tests.stores.earlier.queries:Sale", "kind": "row"}}}, "append_only": false}, "of": [], "id": "a3f60e352f22328d", "called": "totals.sales"}, {"operator": {"is": "Map", "f": {"is": "Build", "type": {"is": "Struct", "name": "tuple", "fields": [["_1", {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}], ["_2", {"is": "Optional", "inner": {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}}]], "python": {"class": "builtins:tuple", "kind": "row"}}, "fields": [{"is": "Field", "type": {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}, "path": ["shop"]}, {"is": "Field", "type": {"is": "Optional", "inner": {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}}, "path": ["cents"]}]}, "carried": [], "note": []}, "of": [0], "id": "58a785e45693c2ea", "called": "totals.aggregate.map"}, {"operator": {"is": "Accumulate", "key": {"is": "Key", "expr": {"is": "Field", "type": {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}, "path": ["_1"]}, "ascending": [true]}, "pick": {"is": "Build", "type": {"is": "Struct", "name": "tuple", "fields": [["_1", {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}], ["_2", {"is": "Optional", "inner": {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}}], ["_3", {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}]], "python": {"class": "builtins:tuple", "kind": "row"}}, "fields": [{"is": "Literal", "type": {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}, "constant": 1}, {"is": "Field", "type": {"is": "Optional", "inner": {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}}, "path": ["_2"]}, {"is": "Known", "type": {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}, "args": [{"is": "Field", "type": {"is": "Optional", "inner": {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}}, "path": ["_2"]}]}]}}, "of": [1], "id": "ac2394e15a12677c", "called": "totals.aggregate.accumulate", "type": {"is": "GroupedType", "key": {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}, "sum": {"is": "Accumulated", "value": {"is": "Struct", "name": "tuple", "fields": [["_1", {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}], ["_2", {"is": "Optional", "inner": {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}}], ["_3", {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}]], "python": {"class": "builtins:tuple", "kind": "row"}}}}}, {"operator": {"is": "Integrate"}, "of": [2], "id": "9514ca273970ad7c", "called": "totals.aggregate.integrate"}, {"operator": {"is": "Delay"}, "of": [3], "id": "aaa9069369967bec", "called": "totals.aggregate.delay"}, {"operator": {"is": "Map", "f": {"is": "Build", "type": {"is": "Struct", "name": "tuple", "fields": [["_1", {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}], ["_2", {"is": "Atom", "name": "Decimal", "python": {"class": "decimal:Decimal", "kind": "row"}, "precision": 10, "scale": 2}]], "python": {"class": "builtins:tuple", "kind": "row"}}, "fields": [{"is": "Field", "type": {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}, "path": ["shop"]}, {"is": "Field", "type": {"is": "Atom", "name": "Decimal", "python": {"class": "decimal:Decimal", "kind": "row"}, "precision": 10, "scale": 2}, "path": ["price"]}]}, "carried": [], "note": []}, "of": [0], "id": "7c6962bc6d8dfb48", "called": "totals.aggregate.map_2", "type": {"is": "ZSetType", "row": {"is": "Struct", "name": "tuple", "fields": [["_1", {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}], ["_2", {"is": "Atom", "name": "Decimal", "python": {"class": "decimal:Decimal", "kind": "row"}, "precision": 10, "scale": 2}]], "python": {"class": "builtins:tuple", "kind": "row"}}}}, {"operator": {"is": "Integrate"}, "of": [5], "id": "b3eb554f2bc85a27", "called": "totals.aggregate.integrate_2"}, {"operator": {"is": "Delay"}, "of": [6], "id": "6cfbec85a038777f", "called": "totals.aggregate.delay_2"}, {"operator": {"is": "Haitch", "of": {"is": "Top", "keys": [{"is": "Field", "type": {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}, "path": ["_1"]}, {"is": "Bucket", "type": {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}, "args": [{"is": "Field", "type": {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}, "path": ["_1"]}, {"is": "Field", "type": {"is": "Atom", "name": "Decimal", "python": {"class": "decimal:Decimal", "kind": "row"}, "precision": 10, "scale": 2}, "path": ["_2"]}], "buckets": 256}], "order": [[{"is": "Field", "type": {"is": "Atom", "name": "Decimal", "python": {"class": "decimal:Decimal", "kind": "row"}, "precision": 10, "scale": 2}, "path": ["_2"]}, false]], "n": 1, "ties": false, "group_size": null}}, "of": [7, 5], "id": "2a2c05ad812e4876", "called": "totals.aggregate.top_of_256", "type": {"is": "ZSetType", "row": {"is": "Struct", "name": "tuple", "fields": [["_1", {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}], ["_2", {"is": "Atom", "name": "Decimal", "python": {"class": "decimal:Decimal", "kind": "row"}, "precision": 10, "scale": 2}]], "python": {"class": "builtins:tuple", "kind": "row"}}}}, {"operator": {"is": "Integrate"}, "of": [8], "id": "c4016d22e937d945", "called": "totals.aggregate.integrate_3"}, {"operator": {"is": "Delay"}, "of": [9], "id": "e6fc2b9a8451b3b8", "called": "totals.aggregate.delay_3"}, {"operator": {"is": "Haitch", "of": {"is": "Collated", "parts": [[{"is": "Flatten"}, {"is": "Map", "f": {"is": "Build", "type": {"is": "Struct", "name": "tuple", "fields": [["_1", {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}], ["_2", {"is": "Optional", "inner": {"is": "Struct", "name": "tuple", "fields": [["_1", {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}], ["_2", {"is": "Optional", "inner": {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}}], ["_3", {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}]], "python": {"class": "builtins:tuple", "kind": "row"}}}], ["_3", {"is": "Optional", "inner": {"is": "Struct", "name": "tuple", "fields": [["_1", {"is": "Atom", "name": "Decimal", "python": {"class": "decimal:Decimal", "kind": "row"}, "precision": 10, "scale": 2}]], "python": {"class": "builtins:tuple", "kind": "row"}}}]], "python": {"class": "builtins:tuple", "kind": "row"}}, "fields": [{"is": "Field", "type": {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}, "path": ["right"]}, {"is": "Field", "type": {"is": "Optional", "inner": {"is": "Struct", "name": "tuple", "fields": [["_1", {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}], ["_2", {"is": "Optional", "inner": {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}}], ["_3", {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}]], "python": {"class": "builtins:tuple", "kind": "row"}}}, "path": ["left"]}, {"is": "Literal", "type": {"is": "Optional", "inner": {"is": "Struct", "name": "tuple", "fields": [["_1", {"is": "Atom", "name": "Decimal", "python": {"class": "decimal:Decimal", "kind": "row"}, "precision": 10, "scale": 2}]], "python": {"class": "builtins:tuple", "kind": "row"}}}, "constant": null}]}, "carried": [], "note": []}], [{"is": "Top", "keys": [{"is": "Field", "type": {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}, "path": ["_1"]}], "order": [[{"is": "Field", "type": {"is": "Atom", "name": "Decimal", "python": {"class": "decimal:Decimal", "kind": "row"}, "precision": 10, "scale": 2}, "path": ["_2"]}, false]], "n": 1, "ties": false, "group_size": null}, {"is": "Map", "f": {"is": "Build", "type": {"is": "Struct", "name": "tuple", "fields": [["_1", {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}], ["_2", {"is": "Optional", "inner": {"is": "Struct", "name": "tuple", "fields": [["_1", {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}], ["_2", {"is": "Optional", "inner": {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}}], ["_3", {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}]], "python": {"class": "builtins:tuple", "kind": "row"}}}], ["_3", {"is": "Optional", "inner": {"is": "Struct", "name": "tuple", "fields": [["_1", {"is": "Atom", "name": "Decimal", "python": {"class": "decimal:Decimal", "kind": "row"}, "precision": 10, "scale": 2}]], "python": {"class": "builtins:tuple", "kind": "row"}}}]], "python": {"class": "builtins:tuple", "kind": "row"}}, "fields": [{"is": "Field", "type": {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}, "path": ["_1"]}, {"is": "Literal", "type": {"is": "Optional", "inner": {"is": "Struct", "name": "tuple", "fields": [["_1", {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}], ["_2", {"is": "Optional", "inner": {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}}], ["_3", {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}]], "python": {"class": "builtins:tuple", "kind": "row"}}}, "constant": null}, {"is": "Build", "type": {"is": "Optional", "inner": {"is": "Struct", "name": "tuple", "fields": [["_1", {"is": "Atom", "name": "Decimal", "python": {"class": "decimal:Decimal", "kind": "row"}, "precision": 10, "scale": 2}]], "python": {"class": "builtins:tuple", "kind": "row"}}}, "fields": [{"is": "Field", "type": {"is": "Atom", "name": "Decimal", "python": {"class": "decimal:Decimal", "kind": "row"}, "precision": 10, "scale": 2}, "path": ["_2"]}]}]}, "carried": [], "note": []}]], "required": 2}}, "of": [4, 2, 10, 8], "id": "de7c303b9479838d", "called": "totals.aggregate.differentiated_collate"}, {"operator": {"is": "Map", "f": {"is": "Build", "type": {"is": "Struct", "name": "Total", "fields": [["shop", {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}], ["sales", {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}], ["cents", {"is": "Optional", "inner": {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}}], ["dearest", {"is": "Atom", "name": "Decimal", "python": {"class": "decimal:Decimal", "kind": "row"}, "precision": 10, "scale": 2}]], "python": {"class": "tests.stores.earlier.queries:Total", "kind": "row"}}, "fields": [{"is": "Field", "type": {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}, "path": ["_1"]}, {"is": "Field", "type": {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}, "path": ["_2", "_1"]}, {"is": "Given", "type": {"is": "Optional", "inner": {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}}, "args": [{"is": "Field", "type": {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}, "path": ["_2", "_3"]}, {"is": "Field", "type": {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}, "path": ["_2", "_2"]}]}, {"is": "Field", "type": {"is": "Atom", "name": "Decimal", "python": {"class": "decimal:Decimal", "kind": "row"}, "precision": 10, "scale": 2}, "path": ["_3", "_1"]}]}, "carried": [], "note": ["Total by shop", "sales = count()", "cents = sum(cents)", "dearest = max(price)"]}, "of": [11], "id": "871aaf5f5052ee46", "called": "totals.aggregate.differentiated", "type": {"is": "ZSetType", "row": {"is": "Struct", "name": "Total", "fields": [["shop", {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}], ["sales", {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}], ["cents", {"is": "Optional", "inner": {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}}], ["dearest", {"is": "Atom", "name": "Decimal", "python": {"class": "decimal:Decimal", "kind": "row"}, "precision": 10, "scale": 2}]], "python": {"class": "tests.stores.earlier.queries:Total", "kind": "row"}}}}], "loops": [], "outputs": [["", 12]], "registers": [["map [tuple(_1=shop, _2=price)] 7c6962bc6d8dfb48 by _1, bucket of 256", 5], ["accumulate [tuple(_1=1, _2=_2, _3=known(_2)) by _1] ac2394e15a12677c by _key_", 2], ["haitch [top 1 by _2 desc of each (_1, bucket of 256)] 2a2c05ad812e4876 by _1", 8]]}, "checksum": "5046aa9c9c8e4cdd"}');
INSERT INTO aggregate._output_1_ VALUES ('A', 2, 250, 9.99, 1);
INSERT INTO aggregate._output_1_ VALUES ('␀0', 1, 7, -0.01, 1);
INSERT INTO aggregate._output_1_ VALUES ('A', 3, 250, 9.99, -1);
INSERT INTO aggregate._registers_ VALUES ('totals.aggregate.map_2 by _1, bucket of 256', 'totals.aggregate.map_2 by _1, bucket of 256', NULL, '{"columns": [["_1", "str"], ["_2", "Decimal(10, 2)"], ["_key_2_", "int"]], "diffs": [["_count_", "int"]], "key": ["_1", "_key_2_"], "sums": "map [tuple(_1=shop, _2=price)] 7c6962bc6d8dfb48 by _1, bucket of 256"}', '[["_1", "_1", "text"], ["_2", "_2", "numeric(10,2)"], ["_key_2_", "_key_2_", "bigint"], ["_count_", "_count_", "bigint"]]');
INSERT INTO aggregate._registers_ VALUES ('totals.aggregate.accumulate by _key_', 'totals.aggregate.accumulate by _key_', NULL, '{"columns": [["_key_", "str"]], "diffs": [["_rows_", "int"], ["_sum__1_", "Decimal(38, 0)"], ["_sum__2_", "Decimal(38, 0)"], ["_sum__3_", "Decimal(38, 0)"]], "key": ["_key_"], "sums": "accumulate [tuple(_1=1, _2=_2, _3=known(_2)) by _1] ac2394e15a12677c by _key_"}', '[["_key_", "_key_", "text"], ["_rows_", "_rows_", "bigint"], ["_sum__1_", "_sum__1_", "numeric(38,0)"], ["_sum__2_", "_sum__2_", "numeric(38,0)"], ["_sum__3_", "_sum__3_", "numeric(38,0)"]]');
INSERT INTO aggregate._registers_ VALUES ('totals.aggregate.top_of_256 by _1', 'totals.aggregate.top_of_256 by _1', NULL, '{"columns": [["_1", "str"], ["_2", "Decimal(10, 2)"]], "diffs": [["_count_", "int"]], "key": ["_1"], "sums": "haitch [top 1 by _2 desc of each (_1, bucket of 256)] 2a2c05ad812e4876 by _1"}', '[["_1", "_1", "text"], ["_2", "_2", "numeric(10,2)"], ["_count_", "_count_", "bigint"]]');
INSERT INTO aggregate._store_ VALUES (3, 'd9badfd81738ed17', 2, 'int 2', '{}', '[{"table": [["shop", "shop", "text"], ["sales", "sales", "bigint"], ["cents", "cents", "bigint"], ["dearest", "dearest", "numeric(10,2)"], ["_count_", "_count_", "bigint"]], "schema": {"columns": [["shop", "str"], ["sales", "int"], ["cents", {"optional": "int"}], ["dearest", "Decimal(10, 2)"]], "diffs": [["_count_", "int"]]}, "made_by": "differentiate e932d46ae03b8a9b"}]', true, '{}');
INSERT INTO aggregate."totals.aggregate.accumulate by _key_" VALUES (-1991003856445244853, 0, 'A', 2, 2, 250, 1);
INSERT INTO aggregate."totals.aggregate.accumulate by _key_" VALUES (-1847016445338605710, 0, '␀0', 1, 1, 7, 1);
INSERT INTO aggregate."totals.aggregate.map_2 by _1, bucket of 256" VALUES (-6804909941697459974, -901108352979797907, 'A', 2.50, 69, 1);
INSERT INTO aggregate."totals.aggregate.map_2 by _1, bucket of 256" VALUES (-7256234329589271667, -8149895149100872861, '␀0', -0.01, 61, 1);
INSERT INTO aggregate."totals.aggregate.map_2 by _1, bucket of 256" VALUES (-3902556895712747317, -5162420100331886263, 'A', 9.99, 98, 1);
INSERT INTO aggregate."totals.aggregate.top_of_256 by _1" VALUES (-1991003856445244853, -901108352979797907, 'A', 2.50, 1);
INSERT INTO aggregate."totals.aggregate.top_of_256 by _1" VALUES (-1991003856445244853, -5162420100331886263, 'A', 9.99, 1);
INSERT INTO aggregate."totals.aggregate.top_of_256 by _1" VALUES (-1847016445338605710, -8149895149100872861, '␀0', -0.01, 1);
INSERT INTO first_n._circuit_ VALUES ('{"circuit": {"format": 1, "digest": "841177315d1142b0", "name": "dearest", "inputs": [["sales", 0]], "entries": [0], "vertices": [{"operator": {"is": "Input", "number": 0, "label": "sales", "type": {"is": "ZSetType", "row": {"is": "Struct", "name": "Sale", "fields": [["id", {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}], ["shop", {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}], ["cents", {"is": "Optional", "inner": {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}}], ["price", {"is": "Atom", "name": "Decimal", "python": {"class": "decimal:Decimal", "kind": "row"}, "precision": 10, "scale": 2}], ["day", {"is": "Atom", "name": "date", "python": {"class": "datetime:date", "kind": "row"}, "precision": 0, "scale": 0}], ["tags", {"is": "ListOf", "inner": {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}}]], "python": {"class": "tests.stores.earlier.queries:Sale", "kind": "row"}}}, "append_only": false}, "of": [], "id": "a3f60e352f22328d", "called": "dearest.sales", "type": {"is": "ZSetType", "row": {"is": "Struct", "name": "Sale", "fields": [["id", {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}], ["shop", {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}], ["cents", {"is": "Optional", "inner": {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}}], ["price", {"is": "Atom", "name": "Decimal", "python": {"class": "decimal:Decimal", "kind": "row"}, "precision": 10, "scale": 2}], ["day", {"is": "Atom", "name": "date", "python": {"class": "datetime:date", "kind": "row"}, "precision": 0, "scale": 0}], ["tags", {"is": "ListOf", "inner": {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}}]], "python": {"class": "tests.stores.earlier.queries:Sale", "kind": "row"}}}}, {"operator": {"is": "Integrate"}, "of": [0], "id": "357c51114da5955a", "called": "dearest.first_n.integrated"}, {"operator": {"is": "Delay"}, "of": [1], "id": "415458913adc4672", "called": "dearest.first_n.differentiated_delay"}, {"operator": {"is": "Haitch", "of": {"is": "Top", "keys": [{"is": "Field", "type": {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}, "path": ["shop"]}, {"is": "Bucket", "type": {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}, "args": [{"is": "Field", "type": {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}, "path": ["id"]}, {"is": "Field", "type": {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}, "path": ["shop"]}, {"is": "Field", "type": {"is": "Optional", "inner": {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}}, "path": ["cents"]}, {"is": "Field", "type": {"is": "Atom", "name": "Decimal", "python": {"class": "decimal:Decimal", "kind": "row"}, "precision": 10, "scale": 2}, "path": ["price"]}, {"is": "Field", "type": {"is": "Atom", "name": "date", "python": {"class": "datetime:date", "kind": "row"}, "precision": 0, "scale": 0}, "path": ["day"]}, {"is": "Field", "type": {"is": "ListOf", "inner": {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}}, "path": ["tags"]}], "buckets": 256}], "order": [[{"is": "Field", "type": {"is": "Atom", "name": "Decimal", "python": {"class": "decimal:Decimal", "kind": "row"}, "precision": 10, "scale": 2}, "path": ["price"]}, false]], "n": 1, "ties": false, "group_size": null}}, "of": [2, 0], "id": "734c7563f1762681", "called": "dearest.first_n.differentiated_of_256", "type": {"is": "ZSetType", "row": {"is": "Struct", "name": "Sale", "fields": [["id", {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}], ["shop", {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}], ["cents", {"is": "Optional", "inner": {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}}], ["price", {"is": "Atom", "name": "Decimal", "python": {"class": "decimal:Decimal", "kind": "row"}, "precision": 10, "scale": 2}], ["day", {"is": "Atom", "name": "date", "python": {"class": "datetime:date", "kind": "row"}, "precision": 0, "scale": 0}], ["tags", {"is": "ListOf", "inner": {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}}]], "python": {"class": "tests.stores.earlier.queries:Sale", "kind": "row"}}}}, {"operator": {"is": "Integrate"}, "of": [3], "id": "c0e5c92f40a2a1ae", "called": "dearest.first_n.integrate"}, {"operator": {"is": "Delay"}, "of": [4], "id": "427eb85e190a185e", "called": "dearest.first_n.differentiated_delay_2"}, {"operator": {"is": "Haitch", "of": {"is": "Top", "keys": [{"is": "Field", "type": {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}, "path": ["shop"]}], "order": [[{"is": "Field", "type": {"is": "Atom", "name": "Decimal", "python": {"class": "decimal:Decimal", "kind": "row"}, "precision": 10, "scale": 2}, "path": ["price"]}, false]], "n": 1, "ties": false, "group_size": null}}, "of": [5, 3], "id": "cecc6842d286dba7", "called": "dearest.first_n.differentiated", "type": {"is": "ZSetType", "row": {"is": "Struct", "name": "Sale", "fields": [["id", {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}], ["shop", {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}], ["cents", {"is": "Optional", "inner": {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}}], ["price", {"is": "Atom", "name": "Decimal", "python": {"class": "decimal:Decimal", "kind": "row"}, "precision": 10, "scale": 2}], ["day", {"is": "Atom", "name": "date", "python": {"class": "datetime:date", "kind": "row"}, "precision": 0, "scale": 0}], ["tags", {"is": "ListOf", "inner": {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}}]], "python": {"class": "tests.stores.earlier.queries:Sale", "kind": "row"}}}}], "loops": [], "outputs": [["", 6]], "registers": [["input a3f60e352f22328d by shop, bucket of 256", 0], ["haitch [top 1 by price desc of each (shop, bucket of 256)] 734c7563f1762681 by shop", 3]]}, "checksum": "fc76a33f98d04dfa"}');
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
INSERT INTO "join"._circuit_ VALUES ('{"circuit": {"format": 1, "digest": "968b31b5ec3f8583", "name": "joined", "inputs": [["sales", 0], ["shops", 1]], "entries": [0, 1], "vertices": [{"operator": {"is": "Input", "number": 0, "label": "sales", "type": {"is": "ZSetType", "row": {"is": "Struct", "name": "Sale", "fields": [["id", {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}], ["shop", {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}], ["cents", {"is": "Optional", "inner": {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}}], ["price", {"is": "Atom", "name": "Decimal", "python": {"class": "decimal:Decimal", "kind": "row"}, "precision": 10, "scale": 2}], ["day", {"is": "Atom", "name": "date", "python": {"class": "datetime:date", "kind": "row"}, "precision": 0, "scale": 0}], ["tags", {"is": "ListOf", "inner": {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}}]], "python": {"class": "tests.stores.earlier.queries:Sale", "kind": "row"}}}, "append_only": false}, "of": [], "id": "a3f60e352f22328d", "called": "joined.sales", "type": {"is": "ZSetType", "row": {"is": "Struct", "name": "Sale", "fields": [["id", {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}], ["shop", {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}], ["cents", {"is": "Optional", "inner": {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}}], ["price", {"is": "Atom", "name": "Decimal", "python": {"class": "decimal:Decimal", "kind": "row"}, "precision": 10, "scale": 2}], ["day", {"is": "Atom", "name": "date", "python": {"class": "datetime:date", "kind": "row"}, "precision": 0, "scale": 0}], ["tags", {"is": "ListOf", "inner": {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}}]], "python": {"class": "tests.stores.earlier.queries:Sale", "kind": "row"}}}}, {"operator": {"is": "Input", "number": 1, "label": "shops", "type": {"is": "ZSetType", "row": {"is": "Struct", "name": "Shop", "fields": [["name", {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}], ["city", {"is": "Optional", "inner": {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}}]], "python": {"class": "tests.stores.earlier.queries:Shop", "kind": "row"}}}, "append_only": false}, "of": [], "id": "6ade1ed8ef76d3b2", "called": "joined.shops", "type": {"is": "ZSetType", "row": {"is": "Struct", "name": "Shop", "fields": [["name", {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}], ["city", {"is": "Optional", "inner": {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}}]], "python": {"class": "tests.stores.earlier.queries:Shop", "kind": "row"}}}}, {"operator": {"is": "Integrate"}, "of": [0], "id": "357c51114da5955a", "called": "joined.join.l_integrated"}, {"operator": {"is": "Join", "left": {"is": "Key", "expr": {"is": "Field", "type": {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}, "path": ["shop"]}, "ascending": [true]}, "right": {"is": "Key", "expr": {"is": "Field", "type": {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}, "path": ["name"]}, "ascending": [true]}}, "of": [2, 1], "id": "b4c49775d08c9246", "called": "joined.join.joined_1"}, {"operator": {"is": "Integrate"}, "of": [1], "id": "279ad39c76b221a1", "called": "joined.join.r_integrated"}, {"operator": {"is": "Delay"}, "of": [4], "id": "a08fde19e1a75169", "called": "joined.join.r_integrated_delayed"}, {"operator": {"is": "Join", "left": {"is": "Key", "expr": {"is": "Field", "type": {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}, "path": ["shop"]}, "ascending": [true]}, "right": {"is": "Key", "expr": {"is": "Field", "type": {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}, "path": ["name"]}, "ascending": [true]}}, "of": [0, 5], "id": "93aad6ca34a691d0", "called": "joined.join.joined_2"}, {"operator": {"is": "Add"}, "of": [3, 6], "id": "f13378c70c000635", "called": "joined.join.added", "type": {"is": "ZSetType", "row": {"is": "Struct", "name": "Pair", "fields": [["left", {"is": "Struct", "name": "Sale", "fields": [["id", {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}], ["shop", {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}], ["cents", {"is": "Optional", "inner": {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}}], ["price", {"is": "Atom", "name": "Decimal", "python": {"class": "decimal:Decimal", "kind": "row"}, "precision": 10, "scale": 2}], ["day", {"is": "Atom", "name": "date", "python": {"class": "datetime:date", "kind": "row"}, "precision": 0, "scale": 0}], ["tags", {"is": "ListOf", "inner": {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}}]], "python": {"class": "tests.stores.earlier.queries:Sale", "kind": "row"}}], ["right", {"is": "Struct", "name": "Shop", "fields": [["name", {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}], ["city", {"is": "Optional", "inner": {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}}]], "python": {"class": "tests.stores.earlier.queries:Shop", "kind": "row"}}]], "python": {"class": "stepping_spark.rows.data:Pair", "kind": "row"}}}}], "loops": [], "outputs": [["", 7]], "registers": [["input a3f60e352f22328d by shop", 0], ["input 6ade1ed8ef76d3b2 by name", 1]]}, "checksum": "c65018ad505170a4"}');
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
INSERT INTO "window"._circuit_ VALUES ('{"circuit": {"format": 1, "digest": "3796c48a8c38e493", "name": "before", "inputs": [["sales", 0]], "entries": [0], "vertices": [{"operator": {"is": "Input", "number": 0, "label": "sales", "type": {"is": "ZSetType", "row": {"is": "Struct", "name": "Sale", "fields": [["id", {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}], ["shop", {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}], ["cents", {"is": "Optional", "inner": {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}}], ["price", {"is": "Atom", "name": "Decimal", "python": {"class": "decimal:Decimal", "kind": "row"}, "precision": 10, "scale": 2}], ["day", {"is": "Atom", "name": "date", "python": {"class": "datetime:date", "kind": "row"}, "precision": 0, "scale": 0}], ["tags", {"is": "ListOf", "inner": {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}}]], "python": {"class": "tests.stores.earlier.queries:Sale", "kind": "row"}}}, "append_only": false}, "of": [], "id": "a3f60e352f22328d", "called": "before.sales", "type": {"is": "ZSetType", "row": {"is": "Struct", "name": "Sale", "fields": [["id", {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}], ["shop", {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}], ["cents", {"is": "Optional", "inner": {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}}], ["price", {"is": "Atom", "name": "Decimal", "python": {"class": "decimal:Decimal", "kind": "row"}, "precision": 10, "scale": 2}], ["day", {"is": "Atom", "name": "date", "python": {"class": "datetime:date", "kind": "row"}, "precision": 0, "scale": 0}], ["tags", {"is": "ListOf", "inner": {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}}]], "python": {"class": "tests.stores.earlier.queries:Sale", "kind": "row"}}}}, {"operator": {"is": "Integrate"}, "of": [0], "id": "357c51114da5955a", "called": "before.window.integrated"}, {"operator": {"is": "Delay"}, "of": [1], "id": "415458913adc4672", "called": "before.window.delay"}, {"operator": {"is": "Haitch", "of": {"is": "Window", "keys": [{"is": "Field", "type": {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}, "path": ["shop"]}], "sorting": [{"is": "Sorting", "expr": {"is": "Field", "type": {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}, "path": ["id"]}, "ascending": true, "nulls_first": true}], "calls": [{"is": "WindowCall", "kind": "lag", "type": {"is": "Optional", "inner": {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}}, "args": [{"is": "Field", "type": {"is": "Optional", "inner": {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}}, "path": ["cents"]}], "frame": null, "n": 1, "ignore_nulls": false, "gap": null, "share": {"float": "0x1.0000000000000p-1"}}]}}, "of": [2, 0], "id": "23b666c761eef988", "called": "before.window.differentiated_window"}, {"operator": {"is": "Map", "f": {"is": "Build", "type": {"is": "Struct", "name": "Before", "fields": [["shop", {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}], ["id", {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}], ["day", {"is": "Atom", "name": "date", "python": {"class": "datetime:date", "kind": "row"}, "precision": 0, "scale": 0}], ["previous", {"is": "Optional", "inner": {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}}]], "python": {"class": "tests.stores.earlier.queries:Before", "kind": "row"}}, "fields": [{"is": "Field", "type": {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}, "path": ["left", "shop"]}, {"is": "Field", "type": {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}, "path": ["left", "id"]}, {"is": "Field", "type": {"is": "Atom", "name": "date", "python": {"class": "datetime:date", "kind": "row"}, "precision": 0, "scale": 0}, "path": ["left", "day"]}, {"is": "Field", "type": {"is": "Optional", "inner": {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}}, "path": ["right", "_1"]}]}, "carried": [], "note": []}, "of": [3], "id": "098548f26ae59313", "called": "before.window.differentiated", "type": {"is": "ZSetType", "row": {"is": "Struct", "name": "Before", "fields": [["shop", {"is": "Atom", "name": "str", "python": {"class": "builtins:str", "kind": "row"}, "precision": 0, "scale": 0}], ["id", {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}], ["day", {"is": "Atom", "name": "date", "python": {"class": "datetime:date", "kind": "row"}, "precision": 0, "scale": 0}], ["previous", {"is": "Optional", "inner": {"is": "Atom", "name": "int", "python": {"class": "builtins:int", "kind": "row"}, "precision": 0, "scale": 0}}]], "python": {"class": "tests.stores.earlier.queries:Before", "kind": "row"}}}}], "loops": [], "outputs": [["", 4]], "registers": [["input a3f60e352f22328d by shop", 0]]}, "checksum": "1da4eb5fbaf76052"}');
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
