CREATE TABLE cronledger_runs (
  id TEXT NOT NULL PRIMARY KEY,
  namespace TEXT NOT NULL,
  job TEXT NOT NULL,
  scope_node TEXT NOT NULL,
  due_at TEXT NOT NULL,
  state TEXT NOT NULL,
  active_job TEXT NULL,
  held_lock TEXT NULL,
  cause TEXT NOT NULL,
  node TEXT NOT NULL,
  owner TEXT NOT NULL,
  pid INTEGER NULL,
  pid_start INTEGER NULL,
  started_at TEXT NOT NULL,
  expires_at TEXT NOT NULL,
  finished_at TEXT NULL,
  duration_ms INTEGER NULL,
  exit_code INTEGER NULL,
  failure_reason TEXT NULL,
  output TEXT NULL,
  token TEXT NOT NULL,
  created_at TEXT NOT NULL,
  updated_at TEXT NOT NULL,
  place INTEGER NULL,
  lease_ms INTEGER NULL,
  stale_after_ms INTEGER NULL,
  attempts INTEGER NULL,
  notice TEXT NULL,
  CONSTRAINT cronledger_runs_slot UNIQUE (namespace, job, scope_node, due_at),
  CONSTRAINT cronledger_runs_active UNIQUE (namespace, scope_node, active_job),
  CONSTRAINT cronledger_runs_lock UNIQUE (namespace, held_lock),
  CONSTRAINT cronledger_runs_place UNIQUE (namespace, node, place)
);

CREATE TABLE cronledger_jobs (
  namespace TEXT NOT NULL,
  job TEXT NOT NULL,
  scope_node TEXT NOT NULL,
  stood_down_at TEXT NULL,
  token TEXT NOT NULL,
  created_at TEXT NOT NULL,
  updated_at TEXT NOT NULL,
  timing TEXT NULL,
  timed_at TEXT NULL,
  paused_at TEXT NULL,
  resumes_at TEXT NULL,
  paused_by TEXT NULL,
  pause_reason TEXT NULL,
  resumed_at TEXT NULL,
  reminded_at TEXT NULL,
  seen_at TEXT NULL,
  CONSTRAINT cronledger_jobs_one UNIQUE (namespace, job, scope_node)
);

CREATE TABLE cronledger_meta (
  name TEXT NOT NULL PRIMARY KEY,
  value INTEGER NOT NULL
);

CREATE INDEX cronledger_runs_expiry ON cronledger_runs (namespace, state, expires_at);

CREATE INDEX cronledger_runs_last ON cronledger_runs (namespace, job, started_at);

CREATE INDEX cronledger_runs_history ON cronledger_runs (namespace, started_at);

CREATE INDEX cronledger_runs_prune ON cronledger_runs (namespace, finished_at, id);

CREATE INDEX cronledger_runs_notice ON cronledger_runs (namespace, notice);

INSERT INTO cronledger_meta (name, value) VALUES ('schema_version', 2);

INSERT INTO cronledger_meta (name, value) VALUES ('oldest_version', 1);
