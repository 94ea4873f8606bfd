CREATE TABLE cronledger_runs (
  id varchar(36) COLLATE "C" NOT NULL PRIMARY KEY,
  namespace varchar(128) COLLATE "C" NOT NULL,
  job varchar(128) COLLATE "C" NOT NULL,
  scope_node varchar(128) COLLATE "C" NOT NULL,
  due_at timestamptz(6) NOT NULL,
  state varchar(36) COLLATE "C" NOT NULL,
  active_job varchar(128) COLLATE "C" NULL,
  held_lock varchar(128) COLLATE "C" NULL,
  cause varchar(36) COLLATE "C" NOT NULL,
  node varchar(128) COLLATE "C" NOT NULL,
  owner varchar(128) COLLATE "C" NOT NULL,
  pid bigint NULL,
  pid_start bigint NULL,
  started_at timestamptz(6) NOT NULL,
  expires_at timestamptz(6) NOT NULL,
  finished_at timestamptz(6) NULL,
  duration_ms bigint NULL,
  exit_code bigint NULL,
  failure_reason text NULL,
  output text NULL,
  token varchar(36) COLLATE "C" NOT NULL,
  created_at timestamptz(6) NOT NULL,
  updated_at timestamptz(6) NOT NULL,
  place bigint NULL,
  lease_ms bigint NULL,
  stale_after_ms bigint NULL,
  attempts bigint NULL,
  notice varchar(36) COLLATE "C" NULL,
  CONSTRAINT cronledger_runs_slot UNIQUE (namespace, job, scope_node, due_at),
  CONSTRAINT cronledger_runs_active UNIQUE (namespace, scope_node, active_job),
  CONSTRAINT cronledger_runs_lock UNIQUE (namespace, held_lock),
  CONSTRAINT cronledger_runs_place UNIQUE (namespace, node, place)
);

CREATE TABLE cronledger_jobs (
  namespace varchar(128) COLLATE "C" NOT NULL,
  job varchar(128) COLLATE "C" NOT NULL,
  scope_node varchar(128) COLLATE "C" NOT NULL,
  stood_down_at timestamptz(6) NULL,
  token varchar(36) COLLATE "C" NOT NULL,
  created_at timestamptz(6) NOT NULL,
  updated_at timestamptz(6) NOT NULL,
  timing text NULL,
  timed_at timestamptz(6) NULL,
  paused_at timestamptz(6) NULL,
  resumes_at timestamptz(6) NULL,
  paused_by varchar(128) COLLATE "C" NULL,
  pause_reason text NULL,
  resumed_at timestamptz(6) NULL,
  reminded_at timestamptz(6) NULL,
  seen_at timestamptz(6) NULL,
  CONSTRAINT cronledger_jobs_one UNIQUE (namespace, job, scope_node)
);

CREATE TABLE cronledger_meta (
  name varchar(36) COLLATE "C" NOT NULL PRIMARY KEY,
  value bigint NOT NULL
);

CREATE INDEX cronledger_runs_expiry ON cronledger_runs (namespace, state, expires_at);

CREATE INDEX cronledger_runs_last ON cronledger_runs (namespace, job, started_at);

CREATE INDEX cronledger_runs_history ON cronledger_runs (namespace, started_at);

CREATE INDEX cronledger_runs_prune ON cronledger_runs (namespace, finished_at, id);

CREATE INDEX cronledger_runs_notice ON cronledger_runs (namespace, notice);

INSERT INTO cronledger_meta (name, value) VALUES ('schema_version', 2);

INSERT INTO cronledger_meta (name, value) VALUES ('oldest_version', 1);
