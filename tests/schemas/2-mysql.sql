CREATE TABLE cronledger_runs (
  id varchar(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
  namespace varchar(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  job varchar(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  scope_node varchar(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  due_at datetime(6) NOT NULL,
  state varchar(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  active_job varchar(128) CHARACTER SET ascii COLLATE ascii_bin NULL,
  held_lock varchar(128) CHARACTER SET ascii COLLATE ascii_bin NULL,
  cause varchar(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  node varchar(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  owner varchar(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  pid bigint NULL,
  pid_start bigint NULL,
  started_at datetime(6) NOT NULL,
  expires_at datetime(6) NOT NULL,
  finished_at datetime(6) NULL,
  duration_ms bigint NULL,
  exit_code bigint NULL,
  failure_reason text CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
  output mediumtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
  token varchar(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  created_at datetime(6) NOT NULL,
  updated_at datetime(6) NOT NULL,
  place bigint NULL,
  lease_ms bigint NULL,
  stale_after_ms bigint NULL,
  attempts bigint NULL,
  notice varchar(36) CHARACTER SET ascii COLLATE ascii_bin NULL,
  CONSTRAINT cronledger_runs_slot UNIQUE (namespace, job, scope_node, due_at),
  CONSTRAINT cronledger_runs_active UNIQUE (namespace, scope_node, active_job),
  CONSTRAINT cronledger_runs_lock UNIQUE (namespace, held_lock),
  CONSTRAINT cronledger_runs_place UNIQUE (namespace, node, place)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE cronledger_jobs (
  namespace varchar(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  job varchar(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  scope_node varchar(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  stood_down_at datetime(6) NULL,
  token varchar(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  created_at datetime(6) NOT NULL,
  updated_at datetime(6) NOT NULL,
  timing text CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
  timed_at datetime(6) NULL,
  paused_at datetime(6) NULL,
  resumes_at datetime(6) NULL,
  paused_by varchar(128) CHARACTER SET ascii COLLATE ascii_bin NULL,
  pause_reason text CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL,
  resumed_at datetime(6) NULL,
  reminded_at datetime(6) NULL,
  seen_at datetime(6) NULL,
  CONSTRAINT cronledger_jobs_one UNIQUE (namespace, job, scope_node)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE cronledger_meta (
  name varchar(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
  value bigint NOT NULL
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX cronledger_runs_expiry ON cronledger_runs (namespace, state, expires_at);

CREATE INDEX cronledger_runs_last ON cronledger_runs (namespace, job, started_at);

CREATE INDEX cronledger_runs_history ON cronledger_runs (namespace, started_at);

CREATE INDEX cronledger_runs_prune ON cronledger_runs (namespace, finished_at, id);

CREATE INDEX cronledger_runs_notice ON cronledger_runs (namespace, notice);

INSERT INTO cronledger_meta (name, value) VALUES ('schema_version', 2);

INSERT INTO cronledger_meta (name, value) VALUES ('oldest_version', 1);
