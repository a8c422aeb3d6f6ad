/* A model of slurmctld: the loop of events, the main scheduling pass, and when backfill runs.
 *
 * docs/fidelity.md describes what it omits and how much it differs from a real slurmctld.
 */

/* Return the first point of a grid at or after an instant; the instant itself if the grid has no step. */
static double on_grid(double instant, double phase, double step) {
    return step <= 0.0 ? instant : ceil((instant - phase) / step - 1e-9) * step + phase;
}

/* Request a main pass and backfill, as every change of the queue or the nodes does. */
EXPORT void ask_for_pass(Slurm *m, double now) {
    Control *control = m->control;
    double free_time = control->last_pass_time + control->batch_delay_s;
    double due = on_grid(most(now, free_time), control->tick_phase_time, control->tick_s);
    control->pass_time = least(control->pass_time, due);
    double backfill = on_grid(now, control->backfill_phase_time, control->bf_interval_s);
    if (backfill <= control->backfill_time) backfill += control->bf_interval_s;
    control->backfill_due_time = least(control->backfill_due_time, backfill);
}

/* Start jobs in the order of the line until one does not fit. */
static void main_pass(State *s, Slurm *m, double now) {
    for (int64_t tested = 0; s->tally->pending > 0 && tested < m->control->queue_depth; tested++) {
        int32_t row = m->line[0];
        if (!pick_now(s, m, row, now) || waits_for_switches(s, m, row, now)) return;
        launch(s, m, 0, now);
    }
}

static double next_event(State *s, Slurm *m) {
    const Control *control = m->control;
    /* A pass over an empty line still keeps the next one away. */
    double now = least(next_instant(s), least(control->pass_time, control->backfill_due_time));
    if (s->tally->pending > 0) now = least(now, most(s->tally->now, control->calc_time + control->calc_period_s));
    return now;
}

/* Recalculate priorities as of the last full period; while no job is pending they are not needed. */
static void keep_priorities(State *s, Slurm *m, double now) {
    const Control *control = m->control;
    double periods = floor((now - control->calc_time) / control->calc_period_s + 1e-9);
    if (periods < 1.0) return;
    recalculate(s, m, control->calc_time + periods * control->calc_period_s);
    /* Slurm looks again in any case; over the same line and the same nodes it comes to the same end. */
    if (s->tally->pending > 0 && reprioritise(s, m, now)) ask_for_pass(m, now);
}

/* Set the timer of a job to the end of its wait for few switches. */
EXPORT void watch_switches(State *s, Slurm *m, int64_t row, double now) {
    Job *job = &s->jobs[row];
    double ends = switch_wait_ends(s, m, row);
    job->watch_time = job->switches > 0 && ends > now ? ends : INFINITY;
    set_timer(s, row);
}

static void submit(State *s, Slurm *m, int64_t row, double now) {
    Job *job = &s->jobs[row];
    if (job->phase != FUTURE) {
        s->tally->ended++; /* it can never fit */
        return;
    }
    job->phase = PENDING;
    job->since_time = now;
    job->priority = priority_of(s, m, row, now);
    insert(s, m, row);
    watch_switches(s, m, row, now);
    ask_for_pass(m, now);
}

/* Handle a job whose timer is due: it ends, or its wait for switches does. */
static void handle_due(State *s, Slurm *m, int64_t row, double now) {
    Control *control = m->control;
    int64_t how = expired(s, row);
    if (how != END_NOT) {
        /* What an ending job used since the last period is not charged: 22.05 was seen to leave it out. */
        mark_stale(s, m, row);
        end(s, row, now, how);
        ask_for_pass(m, now);
        if (how == END_TIME_LIMIT) control->pass_time = now;
        return;
    }
    s->jobs[row].watch_time = INFINITY;
    set_timer(s, row);
    /* Nothing wakes slurmctld when a wait ends: the next full pass or the next backfill sees it. */
    ask_for_pass(m, now);
    control->pass_time = on_grid(now, control->tick_phase_time, control->sched_interval_s);
}

/* Apply failures and repairs of nodes; the jobs of a failed node are requeued and keep their age. */
static void apply_faults(State *s, Slurm *m, double now) {
    int64_t before = s->tally->faults;
    for (int64_t victim; (victim = next_victim(s, now)) != NONE;) {
        charge(s, m, victim, now);
        mark_stale(s, m, victim);
        preempt(s, victim, now);
        s->tally->pending--; /* counted again as it is put into the line */
        s->jobs[victim].priority = priority_of(s, m, victim, now);
        insert(s, m, victim);
    }
    if (s->tally->faults > before) ask_for_pass(m, now);
}

/* Run until all jobs have ended (DONE), `until` (PAUSED), or the segments are full (FULL). */
EXPORT int64_t run_slurm(State *s, Slurm *m, double until) {
    Tally *tally = s->tally;
    Control *control = m->control;
    for (;;) {
        if (s->n_segments - tally->segments < tally->running + 2) return FULL;
        double now = next_event(s, m);
        if (now == INFINITY) return DONE;
        if (now > until) {
            tally->now = until;
            return PAUSED;
        }
        tally->now = now;
        while (tally->timers > 0 && s->jobs[s->timers[0]].timer <= now) handle_due(s, m, s->timers[0], now);
        apply_faults(s, m, now);
        keep_priorities(s, m, now);
        while (tally->arrived < s->n_jobs && s->jobs[tally->arrived].submit_time <= now) {
            submit(s, m, tally->arrived, now);
            tally->arrived++;
        }
        if (control->pass_time <= now) {
            control->pass_time = INFINITY;
            control->last_pass_time = now;
            main_pass(s, m, now);
        }
        if (control->backfill_due_time <= now) backfill_pass(s, m, now);
    }
}
