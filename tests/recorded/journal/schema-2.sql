BEGIN TRANSACTION;
CREATE TABLE audit (
      id INTEGER PRIMARY KEY AUTOINCREMENT, time REAL NOT NULL, event TEXT NOT NULL, detail TEXT NOT NULL,
      previous TEXT NOT NULL, hash TEXT NOT NULL
    ) STRICT;
INSERT INTO "audit" VALUES(1,1800000000.0,'claimed','{"cluster":"here"}','0000000000000000000000000000000000000000000000000000000000000000','fed95330f7a7579f223d01865f03daf2b30ef5dd2bf713dd22d645fdef9b1237');
INSERT INTO "audit" VALUES(2,1800000000.0,'intended','{"account":"lab","added_delay_s":60.0,"after":"50","before":"0","due_time":1800000600.0,"job_id":5,"lever":"nice","user":"ada"}','fed95330f7a7579f223d01865f03daf2b30ef5dd2bf713dd22d645fdef9b1237','abf11e7a5ea7f5321f8d37d4a1f404fee4d80710cfc945f0cf13a1307079ff6d');
INSERT INTO "audit" VALUES(3,1800000000.0,'out','{"account":"lab","added_delay_s":60.0,"after":"50","before":"0","due_time":1800000600.0,"job_id":5,"lever":"nice","user":"ada"}','abf11e7a5ea7f5321f8d37d4a1f404fee4d80710cfc945f0cf13a1307079ff6d','f1198877c0f127b5485ee188a41455fd650e339d7d1148ab2774291ef9bf5440');
INSERT INTO "audit" VALUES(4,1800000000.0,'intended','{"account":"lab","added_delay_s":60.0,"after":"{\"low\":1,\"high\":1}","before":"{\"low\":1,\"high\":4}","due_time":1800000600.0,"job_id":5,"lever":"node_range","user":"ada"}','f1198877c0f127b5485ee188a41455fd650e339d7d1148ab2774291ef9bf5440','dc0dc8f3f2f3b1e3c856b3ce9653d4cbccf0fb73925c69f55240670f66f32016');
INSERT INTO "audit" VALUES(5,1800000000.0,'out','{"account":"lab","added_delay_s":60.0,"after":"{\"low\":1,\"high\":1}","before":"{\"low\":1,\"high\":4}","due_time":1800000600.0,"job_id":5,"lever":"node_range","user":"ada"}','dc0dc8f3f2f3b1e3c856b3ce9653d4cbccf0fb73925c69f55240670f66f32016','dff0d06f7bf2b03fad908c5f7fc0f1321b2a149ad8689abddff21cddf9f0483c');
INSERT INTO "audit" VALUES(6,1800000000.0,'intended','{"account":"lab","added_delay_s":60.0,"after":"[{\"gpu_type\":\"a100\",\"count\":4}]","before":"[{\"gpu_type\":\"a100\",\"count\":8},{\"gpu_type\":null,\"count\":1}]","due_time":1800000600.0,"job_id":6,"lever":"gpu_count","user":"ada"}','dff0d06f7bf2b03fad908c5f7fc0f1321b2a149ad8689abddff21cddf9f0483c','3bcf81c8f513cf1d677923275c2a2c402c5112d728cc23a2c211f42bb1c10c60');
INSERT INTO "audit" VALUES(7,1800000000.0,'out','{"account":"lab","added_delay_s":60.0,"after":"[{\"gpu_type\":\"a100\",\"count\":4}]","before":"[{\"gpu_type\":\"a100\",\"count\":8},{\"gpu_type\":null,\"count\":1}]","due_time":1800000600.0,"job_id":6,"lever":"gpu_count","user":"ada"}','3bcf81c8f513cf1d677923275c2a2c402c5112d728cc23a2c211f42bb1c10c60','3d1460d3bf11543bbdeb5a62806cea705209624b5f85df22aabc63dc87006569');
INSERT INTO "audit" VALUES(8,1800000000.0,'intended','{"account":"lab","added_delay_s":60.0,"after":"{\"count\":1,\"max_wait_s\":600.0}","before":"null","due_time":1800000600.0,"job_id":7,"lever":"switches","user":"ada"}','3d1460d3bf11543bbdeb5a62806cea705209624b5f85df22aabc63dc87006569','33a014efc9e8ac3f08ab8b531774a1d9b80cd57c7542442955c4510b8e0f9a69');
INSERT INTO "audit" VALUES(9,1800000000.0,'out','{"account":"lab","added_delay_s":60.0,"after":"{\"count\":1,\"max_wait_s\":600.0}","before":"null","due_time":1800000600.0,"job_id":7,"lever":"switches","user":"ada"}','33a014efc9e8ac3f08ab8b531774a1d9b80cd57c7542442955c4510b8e0f9a69','b7d33af58dbdb6c131efe9ab12dd0d94b362c892005c5fca5bf743eea6765867');
INSERT INTO "audit" VALUES(10,1800000000.0,'intended','{"account":"lab","added_delay_s":60.0,"after":"1800.0","before":"null","due_time":1800000600.0,"job_id":8,"lever":"time_min","user":"ada"}','b7d33af58dbdb6c131efe9ab12dd0d94b362c892005c5fca5bf743eea6765867','e085a251c5cfa5e30ff9f37a8ccff7258eb8864c57282dcbb7b123efffd6826f');
INSERT INTO "audit" VALUES(11,1800000000.0,'out','{"account":"lab","added_delay_s":60.0,"after":"1800.0","before":"null","due_time":1800000600.0,"job_id":8,"lever":"time_min","user":"ada"}','e085a251c5cfa5e30ff9f37a8ccff7258eb8864c57282dcbb7b123efffd6826f','19953ad8938434a7738895173adc6db671253710741b31595978729998d90ec5');
INSERT INTO "audit" VALUES(12,1800000000.0,'intended','{"account":"lab","added_delay_s":60.0,"after":"null","before":"1799996400.0","due_time":1800000600.0,"job_id":8,"lever":"checkpoint_requeue","user":"ada"}','19953ad8938434a7738895173adc6db671253710741b31595978729998d90ec5','51c023ef4bbfda588111901563d6f691504f05d6d7ada5f1614f15e31de08401');
INSERT INTO "audit" VALUES(13,1800000000.0,'out','{"account":"lab","added_delay_s":60.0,"after":"null","before":"1799996400.0","due_time":1800000600.0,"job_id":8,"lever":"checkpoint_requeue","user":"ada"}','51c023ef4bbfda588111901563d6f691504f05d6d7ada5f1614f15e31de08401','36272755ae41ddc9a7117eb171953eb58157a509d04bff808f37f0b153d75b4b');
INSERT INTO "audit" VALUES(14,1800000000.0,'taken_back','{"account":"lab","added_delay_s":60.0,"after":"50","before":"0","due_time":1800000600.0,"job_id":5,"lever":"nice","user":"ada"}','36272755ae41ddc9a7117eb171953eb58157a509d04bff808f37f0b153d75b4b','d97c2a8fc98ba7ce31c469ced187c191995aee0ebb3f5abc36c2800e3f53df9b');
INSERT INTO "audit" VALUES(15,1800000002.0,'paused','{"said":"paused by ada"}','d97c2a8fc98ba7ce31c469ced187c191995aee0ebb3f5abc36c2800e3f53df9b','90dddf74719a000566578e2796782171c9e725de340b394e4804e90b769c88f7');
CREATE TABLE audit_anchor (
      one INTEGER PRIMARY KEY CHECK (one = 1), id INTEGER NOT NULL, hash TEXT NOT NULL
    ) STRICT;
INSERT INTO "audit_anchor" VALUES(1,0,'0000000000000000000000000000000000000000000000000000000000000000');
CREATE TABLE changes (
      id INTEGER PRIMARY KEY AUTOINCREMENT, cycle_id INTEGER, time REAL NOT NULL, job_id INTEGER NOT NULL,
      lever TEXT NOT NULL, done TEXT NOT NULL, action TEXT NOT NULL, said TEXT NOT NULL
    ) STRICT;
CREATE TABLE cycles (
      id INTEGER PRIMARY KEY AUTOINCREMENT, taken_at REAL NOT NULL, version TEXT NOT NULL, jobs INTEGER NOT NULL,
      pending INTEGER NOT NULL, proposed INTEGER NOT NULL, recommended INTEGER NOT NULL, left_alone INTEGER NOT NULL,
      applied INTEGER NOT NULL DEFAULT 0, held_back INTEGER NOT NULL DEFAULT 0, digest TEXT NOT NULL,
      note TEXT NOT NULL DEFAULT ''
    ) STRICT;
CREATE TABLE leases (
      id INTEGER PRIMARY KEY, job_id INTEGER NOT NULL, lever TEXT NOT NULL, action TEXT NOT NULL, undo TEXT NOT NULL,
      applied_time REAL NOT NULL, due_time REAL, state TEXT NOT NULL, ending TEXT, ended_time REAL
    , user TEXT NOT NULL DEFAULT '', account TEXT NOT NULL DEFAULT '', added_delay_s REAL NOT NULL DEFAULT 0.0, by_person INTEGER NOT NULL DEFAULT 0, overruled_time REAL) STRICT;
INSERT INTO "leases" VALUES(2,5,'node_range','{"job_id":5,"before":{"low":1,"high":4},"after":{"low":1,"high":1}}','{"job_id":5,"before":{"low":1,"high":1},"after":{"low":1,"high":4}}',1800000000.0,1800000600.0,'out',NULL,NULL,'ada','lab',60.0,0,NULL);
INSERT INTO "leases" VALUES(3,6,'gpu_count','{"job_id":6,"scope":"per_job","before":[{"gpu_type":"a100","count":8},{"gpu_type":null,"count":1}],"after":[{"gpu_type":"a100","count":4}]}','{"job_id":6,"scope":"per_job","before":[{"gpu_type":"a100","count":4}],"after":[{"gpu_type":"a100","count":8},{"gpu_type":null,"count":1}]}',1800000000.0,1800000600.0,'out',NULL,NULL,'ada','lab',60.0,0,NULL);
INSERT INTO "leases" VALUES(4,7,'switches','{"job_id":7,"before":null,"after":{"count":1,"max_wait_s":600.0}}','{"job_id":7,"before":{"count":1,"max_wait_s":600.0},"after":null}',1800000000.0,1800000600.0,'out',NULL,NULL,'ada','lab',60.0,0,NULL);
INSERT INTO "leases" VALUES(5,8,'time_min','{"job_id":8,"before":null,"after":1800.0}','{"job_id":8,"before":1800.0,"after":null}',1800000000.0,1800000600.0,'out',NULL,NULL,'ada','lab',60.0,0,NULL);
INSERT INTO "leases" VALUES(6,8,'checkpoint_requeue','{"job_id":8,"for_job_id":9,"before":1799996400.0,"after":null}','{"job_id":8,"for_job_id":9,"before":null,"after":1799996400.0}',1800000000.0,1800000600.0,'out',NULL,NULL,'ada','lab',60.0,0,NULL);
INSERT INTO "leases" VALUES(7,5,'nice','{"job_id":5,"before":0,"after":50}','{"job_id":5,"before":50,"after":0}',1800000000.0,1800000600.0,'out','taken_back',1800000001.0,'ada','lab',60.0,0,NULL);
CREATE TABLE outcomes (
      job_id INTEGER NOT NULL, submit_time REAL NOT NULL, end_time REAL, outcome TEXT NOT NULL,
      PRIMARY KEY (job_id, submit_time)
    ) STRICT;
CREATE TABLE records (
      cycle_id INTEGER PRIMARY KEY, frame INTEGER NOT NULL, content BLOB NOT NULL
    ) STRICT;
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
CREATE INDEX closed_leases_by_job ON leases (job_id) WHERE ending IS NOT NULL;
CREATE INDEX cycles_by_time ON cycles (taken_at);
CREATE INDEX records_by_frame ON records (frame);
CREATE INDEX changes_by_job ON changes (job_id);
CREATE INDEX changes_by_time ON changes (time);
CREATE INDEX outcomes_by_end ON outcomes (end_time);
CREATE TRIGGER audit_grows_at_its_end BEFORE INSERT ON audit
      WHEN NEW.previous IS NOT coalesce(
        (SELECT hash FROM audit ORDER BY id DESC LIMIT 1), (SELECT hash FROM audit_anchor)
      ) BEGIN SELECT RAISE(ABORT, 'the audit only grows at its end'); END;
CREATE TRIGGER audit_is_never_changed BEFORE UPDATE ON audit
      BEGIN SELECT RAISE(ABORT, 'the audit is never changed'); END;
CREATE TRIGGER audit_is_only_pruned BEFORE DELETE ON audit WHEN OLD.id > (SELECT id FROM audit_anchor)
      BEGIN SELECT RAISE(ABORT, 'the audit is only pruned up to its anchor'); END;
CREATE TRIGGER anchor_moves_forward BEFORE UPDATE ON audit_anchor
      WHEN NEW.id <= OLD.id OR NOT EXISTS (SELECT 1 FROM audit WHERE id = NEW.id AND hash = NEW.hash)
      BEGIN SELECT RAISE(ABORT, 'the anchor of the audit moves forward along it'); END;
CREATE TRIGGER anchor_stays BEFORE DELETE ON audit_anchor
      BEGIN SELECT RAISE(ABORT, 'the anchor of the audit stays'); END;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('audit',15);
COMMIT;
PRAGMA user_version = 2;
