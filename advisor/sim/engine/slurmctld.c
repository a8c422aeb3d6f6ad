/* A model of slurmctld: the loop of events, the main scheduling pass, and when backfill runs.
 *
 * docs/fidelity.md describes what it omits and how much it differs from a real slurmctld.
 */

/* Return the first point of a grid at or after an instant; the instant itself if the grid has no step. */
static double on_grid(double instant, double phase, double step) {
    return step <= 0.0 ? instant : ceil((instant - phase) / step - 1e-9) * step + phase;
}

/* Return the first of the recorded instants at or after an instant; beyond them a grid goes on from the last. */
static double next_wake(const double *wakes, int64_t count, double instant, double phase, double step) {
    if (count == 0) return on_grid(instant, phase, step);
    if (instant > wakes[count - 1]) return on_grid(instant, wakes[count - 1], step);
    int64_t low = 0, high = count - 1;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (wakes[middle] < instant) low = middle + 1;
        else high = middle;
    }
    return wakes[low];
}

/* Return when backfill can run next: it sleeps for its interval after every run. */
static double next_backfill(const Slurm *m, double now) {
    const Control *control = m->control;
    double interval = control->bf_interval_s;
    if (m->n_backfill_wakes > 0) {
        double from = most(now, control->backfill_time + interval - 0.5);
        return next_wake(m->backfill_wakes, m->n_backfill_wakes, from, 0.0, interval);
    }
    double due = on_grid(now, control->backfill_phase_time, interval);
    return due <= control->backfill_time ? due + interval : due;
}

/* Return the first tick of the main scheduler at or after an instant. */
static double next_tick(const Slurm *m, double instant) {
    return next_wake(m->wakes, m->n_wakes, instant, m->control->tick_phase_time, m->control->tick_s);
}

/* Request backfill at its next turn. */
static void ask_for_backfill(Slurm *m, double now) {
    m->control->backfill_due_time = least(m->control->backfill_due_time, next_backfill(m, now));
}

/* Request a main pass and backfill, as every change of the queue or the nodes does. */
EXPORT void ask_for_pass(Slurm *m, double now) {
    Control *control = m->control;
    double free_time = on_clock(m, control->last_pass_time) + control->batch_delay_s;
    control->pass_time = least(control->pass_time, next_tick(m, most(now, free_time)));
    ask_for_backfill(m, now);
}

/* Note a pass at a tick, and when the one after it over the full queue is due. */
static void note_pass(Slurm *m, double now) {
    Control *control = m->control;
    control->last_pass_time = now;
    control->pass_time = INFINITY;
    if (now < control->full_time) return;
    control->full_time = next_tick(m, on_clock(m, now) + control->sched_interval_s);
}

static inline bool is_idle(const State *s) { return s->tally->pending == 0 && s->tally->waiting == 0; }

/* Skip the passes over the full queue before an instant, which find nothing to start. */
static void skip_passes(Slurm *m, double now) {
    while (m->control->full_time < now) note_pass(m, m->control->full_time);
}

/* What a main pass finds for an entry of the line: nodes, none, or a reason to pass it over. */
enum { HAS_NODES, NO_NODES, PASSED_OVER };

static int64_t try_now(State *s, Slurm *m, int32_t entry, double now) {
    int32_t row = row_of(s, m, entry), partition = partition_of(s, m, entry);
    const Job *job = &s->jobs[row];
    if (m->partitions[partition].is_blocked || exceeds_jobs(s, m, row, entry)) return PASSED_OVER;
    turn_to(s, m, partition);
    /* Too few nodes of the partition are open: this comes before the other limits. */
    if (m->control->is_split && job->nodes_min > m->control->reached) return NO_NODES;
    if (exceeds_limits(s, m, row, entry) || !is_admitted(s, job, now)) return PASSED_OVER;
    double until = now + least(job->limit_s, YEAR_S);
    if (pick_accepted(s, m, row, until, now)) return HAS_NODES;
    if (preempts_others(s, m, entry, until, now)) return NO_NODES;
    /* Observed once, not explained: with a limit on GPUs, a job with an open node count held up none. */
    if (part_of(job) == NONE && bounds_gpus(m, entry)) return PASSED_OVER;
    return can_run(s, m, row, until) ? NO_NODES : PASSED_OVER;
}

/* Start jobs in the order of the line; one that finds no nodes closes its partition, with its nodes, to later ones.
 *
 * A job that the nodes in service could not take even if they were idle holds up none, nor does a task of an array at
 * its limit.
 */
static void start_line(State *s, Slurm *m, double now) {
    const Control *control = m->control;
    if (s->n_bookings > 0) list_bookings(s, m, now);
    open_partitions(m);
    int64_t place = 0, depth = now < control->full_time ? control->queue_depth : INT64_MAX;
    for (int64_t tested = 0; place < control->lined && tested < depth;) {
        int32_t entry = m->line[place], row = row_of(s, m, entry), partition = partition_of(s, m, entry);
        bool has_turn = !has_started(s, m, row) && !at_array_limit(m, row);
        if (!has_turn || is_spent(m->partitions[partition].tested, control->partition_job_depth)) {
            place++;
            continue;
        }
        m->partitions[partition].tested++;
        tested++;
        int64_t found = try_now(s, m, entry, now);
        if (found == HAS_NODES) {
            launch(s, m, place, now);
            continue;
        }
        if (found == NO_NODES && !holds_nothing(s, m, entry, now)) block(s, m, partition);
        if (control->blocked == m->n_partitions) break;
        place++;
    }
    clear_started(s, m);
}

static void main_pass(State *s, Slurm *m, double now) {
    if (s->tally->waiting > 0) admit_waiting(s, m, now);
    order_anew(s, m);
    start_line(s, m, now);
    stop_leaving(s, m, now);
    /* A job that waits for the start of another becomes eligible after the pass, and gets its turn in a later one. */
    if (s->tally->waiting > 0) admit_waiting(s, m, now);
}

/* Return the next instant at which something can happen; if `is_settled`, passes over the full queue do not count. */
static double next_event(State *s, Slurm *m, bool is_settled) {
    const Control *control = m->control;
    /* A pass over an empty line still keeps the next one away. */
    double pass_time = least(control->pass_time, control->direct_time);
    double now = least(next_instant(s), least(pass_time, control->backfill_due_time));
    if (s->tally->waiting > 0) now = least(now, control->eligible_due_time);
    /* On an idle cluster no change of priorities lets a job start that does not start now. */
    bool is_stuck = now == INFINITY && s->tally->running == 0 && !awaits_decay(s, m);
    if (is_stuck) return now;
    if (s->tally->pending > 0) now = least(now, most(s->tally->now, control->calc_time + control->calc_period_s));
    if (!is_settled && !is_idle(s)) now = least(now, control->full_time);
    return now;
}

/* Recalculate priorities as of the last full period; while no job is pending they are not needed.
 *
 * Return whether a pass can now come to another end.
 */
static bool keep_priorities(State *s, Slurm *m, double now) {
    const Control *control = m->control;
    double periods = floor((now - control->calc_time) / control->calc_period_s + 1e-9);
    if (periods < 1.0) return false;
    recalculate(s, m, control->calc_time + periods * control->calc_period_s);
    /* Slurm looks again in any case; over the same line and the same nodes it comes to the same end. */
    bool is_changed = s->tally->pending > 0 && (reprioritise(s, m, now) || control->has_limits);
    if (is_changed) ask_for_pass(m, now);
    return is_changed;
}

/* Set the timer of a job to the end of its wait for few switches. */
EXPORT void watch_switches(State *s, Slurm *m, int64_t row, double now) {
    Job *job = &s->jobs[row];
    if (m->release_time[row] < INFINITY) return;
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
    if (exceeds(s, m, row, row, COUNTS_SUBMITTED, COUNTS_SUBMITTED)) {
        job->phase = ENDED;
        job->end = END_IMPOSSIBLE; /* refused */
        s->tally->ended++;
        return;
    }
    count_submitted(s, m, row, 1.0);
    job->phase = PENDING;
    job->since_time = now;
    if (has_gate(m)) {
        m->control->changes++;
        int64_t found = admit(s, m, row, now);
        if (found != MET) m->waiting[s->tally->waiting++] = (int32_t)row;
    } else {
        prioritise(s, m, row, now);
        insert(s, m, row);
    }
    watch_switches(s, m, row, now);
    ask_for_pass(m, now);
}

/* Put a requeued job back into the line; its age starts over. */
static void release(State *s, Slurm *m, int64_t row, double now) {
    m->release_time[row] = INFINITY;
    m->eligible_time[row] = now;
    prioritise(s, m, row, now);
    s->tally->pending--; /* counted again by the line */
    insert(s, m, row);
    watch_switches(s, m, row, now);
    ask_for_pass(m, now);
}

/* Handle a job whose timer is due: it ends, is released, or its wait for switches ends. */
static void handle_due(State *s, Slurm *m, int64_t row, double now) {
    Control *control = m->control;
    int64_t how = expired(s, row);
    if (how != END_NOT) {
        /* Of what it used, only the part after the last period is charged now. */
        if (control->charges_ends) keep_priorities(s, m, now);
        charge_stopped(s, m, row, now);
        forget_plan(m, row);
        count_run(s, m, row, m->began[row], -1.0);
        count_submitted(s, m, row, -1.0);
        end(s, row, now, how);
        ask_for_pass(m, now);
        if (how == END_TIME_LIMIT) control->direct_time = now;
        return;
    }
    s->jobs[row].watch_time = INFINITY;
    set_timer(s, row);
    if (m->n_groups > 0 && m->grace_end_time[row] <= now) {
        m->leaving[control->leaving++] = (int32_t)row;
        stop_leaving(s, m, now);
        return;
    }
    if (m->release_time[row] < INFINITY) {
        release(s, m, row, now);
        return;
    }
    /* Nothing wakes slurmctld when a wait ends: the next full pass or the next backfill sees it. */
    ask_for_backfill(m, now);
}

/* Stop a running job, which goes back to its last checkpoint and is held back for a while. */
EXPORT void requeue(State *s, Slurm *m, int64_t row, double now) {
    charge_stopped(s, m, row, now);
    forget_plan(m, row);
    count_run(s, m, row, m->began[row], -1.0);
    preempt(s, row, now);
    m->release_time[row] = s->jobs[row].watch_time = now + m->control->requeue_delay_s;
    set_timer(s, row);
}

/* Apply failures and repairs of nodes; the jobs of a failed node are requeued. Return whether there were any. */
static bool apply_faults(State *s, Slurm *m, double now) {
    int64_t before = s->tally->faults;
    for (int64_t victim; (victim = next_victim(s, now)) != NONE;) requeue(s, m, victim, now);
    if (s->tally->faults > before) ask_for_pass(m, now);
    return s->tally->faults > before;
}

/* Handle what is due at an instant, before the schedulers run; return whether they can now come to another end. */
static bool handle_instant(State *s, Slurm *m, double now) {
    Tally *tally = s->tally;
    Control *control = m->control;
    bool is_changed = false;
    while (tally->timers > 0 && s->jobs[s->timers[0]].timer <= now) {
        handle_due(s, m, s->timers[0], now);
        is_changed = true;
    }
    is_changed |= apply_faults(s, m, now);
    if (control->eligible_due_time <= now) {
        control->eligible_due_time = INFINITY;
        ask_for_backfill(m, now);
        is_changed = true;
    }
    is_changed |= keep_priorities(s, m, now);
    while (tally->arrived < s->n_jobs && s->jobs[tally->arrived].submit_time <= now) {
        submit(s, m, tally->arrived, now);
        tally->arrived++;
        is_changed = true;
    }
    return is_changed;
}

/* Run the schedulers that are due, after what was due before them was handled.
 *
 * Return whether the passes over the full queue that follow come to the same end as the last one, which started
 * nothing, until something changes. Of what a main pass sees, only reservations change with time alone: all other
 * instants that count have a timer.
 */
static bool schedule(State *s, Slurm *m, double now, bool is_settled) {
    Tally *tally = s->tally;
    Control *control = m->control;
    int64_t running = tally->running, waiting = tally->waiting;
    bool is_tick = least(control->pass_time, control->full_time) <= now;
    if (is_tick || control->direct_time <= now) {
        bool is_full = control->full_time <= now;
        control->direct_time = INFINITY;
        main_pass(s, m, now);
        /* A pass beside the ticks does not keep the next one away. */
        if (is_tick) note_pass(m, now);
        bool is_found = tally->running > running || tally->waiting < waiting;
        /* While no job is in the line, the passes are what wakes the calculation of priorities. */
        is_settled = is_full && !is_found && s->n_bookings == 0 && tally->pending > 0;
    }
    if (control->backfill_due_time <= now) {
        backfill_pass(s, m, now);
        is_settled = false;
    }
    if (tally->waiting > 0 && tally->running > running) ask_for_backfill(m, now + 1.0);
    return is_settled;
}

/* Run until all jobs have ended (DONE), `until` (PAUSED), or the segments are full (FULL). */
EXPORT int64_t run_slurm(State *s, Slurm *m, double until) {
    Tally *tally = s->tally;
    bool is_settled = false;
    for (;;) {
        if (s->n_segments - tally->segments < tally->running + 2) return FULL;
        double now = next_event(s, m, is_settled);
        if (now == INFINITY) {
            give_up_waiting(s, m);
            return DONE;
        }
        if (now > until) {
            if (is_settled) skip_passes(m, nextafter(until, INFINITY));
            tally->now = until;
            return PAUSED;
        }
        tally->now = now;
        if (is_settled || is_idle(s)) skip_passes(m, now);
        if (handle_instant(s, m, now)) is_settled = false;
        is_settled = schedule(s, m, now, is_settled);
    }
}
