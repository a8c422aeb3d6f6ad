BEGIN TRANSACTION;
CREATE TABLE leases (
  id INTEGER PRIMARY KEY, job_id INTEGER NOT NULL, lever TEXT NOT NULL, action TEXT NOT NULL, undo TEXT NOT NULL,
  applied_time REAL NOT NULL, due_time REAL, state TEXT NOT NULL, ending TEXT, ended_time REAL
) STRICT;
INSERT INTO "leases" VALUES(2,5,'node_range','{"job_id":5,"before":{"low":1,"high":4},"after":{"low":1,"high":1}}','{"job_id":5,"before":{"low":1,"high":1},"after":{"low":1,"high":4}}',1800000000.0,1800000600.0,'out',NULL,NULL);
INSERT INTO "leases" VALUES(3,6,'gpu_count','{"job_id":6,"scope":"per_job","before":[{"gpu_type":"a100","count":8},{"gpu_type":null,"count":1}],"after":[{"gpu_type":"a100","count":4}]}','{"job_id":6,"scope":"per_job","before":[{"gpu_type":"a100","count":4}],"after":[{"gpu_type":"a100","count":8},{"gpu_type":null,"count":1}]}',1800000000.0,1800000600.0,'out',NULL,NULL);
INSERT INTO "leases" VALUES(4,7,'switches','{"job_id":7,"before":null,"after":{"count":1,"max_wait_s":600.0}}','{"job_id":7,"before":{"count":1,"max_wait_s":600.0},"after":null}',1800000000.0,1800000600.0,'out',NULL,NULL);
INSERT INTO "leases" VALUES(5,8,'time_min','{"job_id":8,"before":null,"after":1800.0}','{"job_id":8,"before":1800.0,"after":null}',1800000000.0,1800000600.0,'out',NULL,NULL);
INSERT INTO "leases" VALUES(6,8,'checkpoint_requeue','{"job_id":8,"for_job_id":9,"before":1799996400.0,"after":null}','{"job_id":8,"for_job_id":9,"before":null,"after":1799996400.0}',1800000000.0,1800000600.0,'out',NULL,NULL);
INSERT INTO "leases" VALUES(7,5,'nice','{"job_id":5,"before":0,"after":50}','{"job_id":5,"before":50,"after":0}',1800000000.0,1800000600.0,'out','taken_back',1800000005.0);
CREATE TABLE site (one INTEGER PRIMARY KEY CHECK (one = 1), cluster TEXT, observed_until REAL) STRICT;
INSERT INTO "site" VALUES(1,'here',1800000001.0);
CREATE TABLE waits (
  id INTEGER PRIMARY KEY, gpus INTEGER NOT NULL, tier TEXT NOT NULL, waited_s REAL NOT NULL, got INTEGER NOT NULL,
  ended_time REAL NOT NULL
) STRICT;
INSERT INTO "waits" VALUES(1,4,'NODE',60.5,1,1800000000.0);
CREATE UNIQUE INDEX open_leases ON leases (job_id, lever) WHERE ending IS NULL;
CREATE INDEX closed_leases ON leases (ended_time) WHERE ending IS NOT NULL;
CREATE INDEX waits_by_end ON waits (ended_time);
PRAGMA user_version = 1;
COMMIT;
