CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num));
CREATE TABLE arms (
	run INTEGER NOT NULL, 
	arm INTEGER NOT NULL, 
	name VARCHAR NOT NULL, 
	ordinal INTEGER, 
	"key" BLOB NOT NULL, 
	PRIMARY KEY (run, arm)
)
 WITHOUT ROWID

;
CREATE TABLE bodies (
	"key" BLOB NOT NULL, 
	data BLOB NOT NULL, 
	PRIMARY KEY ("key")
);
CREATE TABLE body_parts (
	body BLOB NOT NULL, 
	part BLOB NOT NULL, 
	PRIMARY KEY (body, part)
)
 WITHOUT ROWID

;
CREATE TABLE calls (
	id INTEGER NOT NULL, 
	output INTEGER, 
	run INTEGER NOT NULL, 
	take INTEGER NOT NULL, 
	evaluator INTEGER, 
	account VARCHAR NOT NULL, 
	endpoint INTEGER NOT NULL, 
	attempt INTEGER NOT NULL, 
	started FLOAT NOT NULL, 
	seconds FLOAT NOT NULL, 
	waited FLOAT NOT NULL, 
	ttft FLOAT, 
	status INTEGER, 
	sent_tokens INTEGER, 
	exact BOOLEAN NOT NULL, 
	cost FLOAT, 
	usage BLOB, 
	finish_reason VARCHAR, 
	error VARCHAR, 
	request BLOB, 
	reply BLOB, 
	setup INTEGER, 
	in_flight INTEGER, 
	PRIMARY KEY (id)
);
CREATE TABLE certificates (
	"key" BLOB NOT NULL, 
	created FLOAT NOT NULL, 
	updated FLOAT NOT NULL, 
	owner VARCHAR, 
	state BLOB NOT NULL, 
	PRIMARY KEY ("key")
);
CREATE TABLE counted_sessions (
	certificate BLOB NOT NULL, 
	session BLOB NOT NULL, 
	requests INTEGER NOT NULL, 
	PRIMARY KEY (certificate, session)
)
 WITHOUT ROWID

;
CREATE TABLE endpoints (
	id INTEGER NOT NULL, 
	model VARCHAR NOT NULL, 
	url VARCHAR NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE evaluators (
	id INTEGER NOT NULL, 
	"key" BLOB NOT NULL, 
	name VARCHAR NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE ("key")
);
CREATE TABLE examples (
	run INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	id BLOB NOT NULL, 
	dataset VARCHAR NOT NULL, 
	"group" VARCHAR, 
	cluster VARCHAR, 
	content BLOB NOT NULL, 
	body BLOB, 
	PRIMARY KEY (run, position)
)
 WITHOUT ROWID

;
CREATE TABLE forwarded (
	id INTEGER NOT NULL, 
	run INTEGER NOT NULL, 
	output INTEGER, 
	take INTEGER NOT NULL, 
	record BLOB NOT NULL, 
	request BLOB, 
	reply BLOB, 
	setup INTEGER, 
	PRIMARY KEY (id)
);
CREATE TABLE outputs (
	id INTEGER NOT NULL, 
	"key" BLOB NOT NULL, 
	run INTEGER NOT NULL, 
	created FLOAT NOT NULL, 
	takes INTEGER NOT NULL, 
	tapped BOOLEAN NOT NULL, 
	error VARCHAR, 
	source VARCHAR, 
	input_tokens INTEGER, 
	output_tokens INTEGER, 
	context_tokens INTEGER, 
	latency FLOAT, 
	output BLOB NOT NULL, 
	usage BLOB, 
	wire BLOB, 
	metadata BLOB, 
	setup INTEGER, 
	PRIMARY KEY (id)
);
CREATE TABLE pens (
	number INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	run INTEGER NOT NULL, 
	works BOOLEAN NOT NULL, 
	owner VARCHAR NOT NULL, 
	written INTEGER NOT NULL
);
CREATE TABLE "plan" (
	run INTEGER NOT NULL, 
	arm INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	trial INTEGER NOT NULL, 
	output INTEGER, 
	PRIMARY KEY (run, arm, position, trial)
)
 WITHOUT ROWID

;
CREATE TABLE replies (
	"key" BLOB NOT NULL, 
	created FLOAT NOT NULL, 
	reply BLOB NOT NULL, 
	PRIMARY KEY ("key")
)
 WITHOUT ROWID

;
CREATE TABLE row_notes (
	run INTEGER NOT NULL, 
	arm INTEGER NOT NULL, 
	position INTEGER NOT NULL, 
	trial INTEGER NOT NULL, 
	content BLOB NOT NULL, 
	tags VARCHAR NOT NULL, 
	note VARCHAR NOT NULL, 
	updated FLOAT NOT NULL, 
	PRIMARY KEY (run, arm, position, trial)
)
 WITHOUT ROWID

;
CREATE TABLE run_evaluators (
	run INTEGER NOT NULL, 
	ordinal INTEGER NOT NULL, 
	evaluator INTEGER NOT NULL, 
	PRIMARY KEY (run, ordinal)
)
 WITHOUT ROWID

;
CREATE TABLE runs (
	number INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	id VARCHAR NOT NULL, 
	name VARCHAR NOT NULL, 
	status VARCHAR NOT NULL, 
	identity VARCHAR NOT NULL, 
	created FLOAT NOT NULL, 
	updated FLOAT NOT NULL, 
	owner VARCHAR, 
	manifest BLOB NOT NULL, 
	counts BLOB NOT NULL, 
	title VARCHAR, 
	tags VARCHAR, 
	deleted FLOAT, 
	UNIQUE (id), 
	UNIQUE (name)
);
CREATE TABLE scores (
	output INTEGER NOT NULL, 
	evaluator INTEGER NOT NULL, 
	"values" BLOB, 
	error VARCHAR, 
	usage BLOB, 
	PRIMARY KEY (output, evaluator)
)
 WITHOUT ROWID

;
CREATE TABLE setups (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	run INTEGER NOT NULL, 
	arm INTEGER NOT NULL, 
	"key" BLOB NOT NULL, 
	trial INTEGER NOT NULL, 
	"group" VARCHAR, 
	position INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	attempt INTEGER NOT NULL, 
	created FLOAT NOT NULL, 
	seconds FLOAT, 
	output BLOB, 
	usage BLOB, 
	error VARCHAR
);
CREATE TABLE sources (
	run INTEGER NOT NULL, 
	source BLOB NOT NULL, 
	positions INTEGER NOT NULL, 
	ended BOOLEAN NOT NULL, 
	PRIMARY KEY (run)
)
 WITHOUT ROWID

;
CREATE TABLE sqlite_sequence(name,seq);
CREATE TABLE watched (
	watch INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	arm VARCHAR NOT NULL, 
	session VARCHAR NOT NULL, 
	turn INTEGER NOT NULL, 
	record BLOB NOT NULL, 
	PRIMARY KEY (watch, number)
)
 WITHOUT ROWID

;
CREATE TABLE watched_bodies (
	watch INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	place INTEGER NOT NULL, 
	request BLOB, 
	reply BLOB, 
	PRIMARY KEY (watch, number, place)
)
 WITHOUT ROWID

;
CREATE TABLE watches (
	number INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	name VARCHAR NOT NULL, 
	status VARCHAR NOT NULL, 
	created FLOAT NOT NULL, 
	updated FLOAT NOT NULL, 
	owner VARCHAR, 
	settings BLOB NOT NULL, 
	UNIQUE (name)
);
CREATE INDEX calls_output ON calls (output);
CREATE UNIQUE INDEX endpoints_name ON endpoints (model, url);
CREATE INDEX examples_content ON examples (run, content);
CREATE INDEX forwarded_output ON forwarded (output);
CREATE INDEX forwarded_run ON forwarded (run);
CREATE UNIQUE INDEX outputs_key ON outputs ("key", run);
CREATE INDEX setups_run ON setups (run);
-- 0011
