/* QOS and association limits: counters that a job is counted in, and bounds on them.
 *
 * A job that would exceed a bound neither starts nor gets a reservation, and holds up no other job.
 */

enum { COUNTS_JOBS, COUNTS_GPUS, COUNTS_CPUS, COUNTS_RUN_S, COUNTS_USED_S, COUNTS_SUBMITTED };

/* Return the GPU-seconds that a job can use up to its time limit. */
static inline double gpu_seconds(const Job *job) { return job->gpus * least(job->limit_s, YEAR_S); }

/* Return the CPUs that a job will hold. */
static double cpus_to_hold(const State *s, const Slurm *m, const Job *job) {
    if (job->exclusive) return job->nodes_min * m->control->cluster_cpus / (double)s->n_nodes;
    int64_t part = part_of(job), held = (int64_t)job->gpus * job->cpus_per_gpu;
    if (part != NONE) held = job->nodes_min * asked_of(job, part).cpus;
    return (double)most_of(1, most_of(held, job->cpus));
}

/* Return by how much a job raises a counter. */
static double amount_of(const State *s, const Slurm *m, const Job *job, int64_t kind) {
    if (kind == COUNTS_GPUS) return job->gpus;
    if (kind == COUNTS_CPUS) return cpus_to_hold(s, m, job);
    if (kind == COUNTS_RUN_S) return gpu_seconds(job);
    return kind == COUNTS_USED_S ? 0.0 : 1.0;
}

static bool exceeds_one(const State *s, const Slurm *m, int64_t row, int64_t entry, int64_t first_kind, int64_t last_kind) {
    const Job *job = &s->jobs[row];
    int32_t of_entry = m->claim_class[entry];
    for (int64_t place = m->claim_begin[of_entry]; place < m->claim_begin[of_entry + 1]; place++) {
        const Counter *counter = &m->counters[m->claims[place].counter];
        if (!m->claims[place].is_checked || counter->kind < first_kind || counter->kind > last_kind) continue;
        if (counter->kind == COUNTS_USED_S) {
            /* The counter that follows holds what running jobs can still use. */
            double planned = m->control->enforces_safe ? counter[1].used + gpu_seconds(job) : 0.0;
            if (counter->used >= counter->bound || counter->used + planned > counter->bound) return true;
        } else if (counter->used + amount_of(s, m, job, counter->kind) > counter->bound) {
            return true;
        }
    }
    return false;
}

/* Return whether a job would exceed a bound of its entry in a range of kinds of counters. */
static inline bool exceeds(const State *s, const Slurm *m, int64_t row, int64_t entry, int64_t first_kind, int64_t last_kind) {
    return m->control->has_limits && exceeds_one(s, m, row, entry, first_kind, last_kind);
}

/* Return whether the number of running jobs alone keeps a job from starting; Slurm tests this first. */
static inline bool exceeds_jobs(const State *s, const Slurm *m, int64_t row, int64_t entry) {
    return exceeds(s, m, row, entry, COUNTS_JOBS, COUNTS_JOBS);
}

/* Return whether a limit keeps a job from starting. */
static inline bool exceeds_limits(const State *s, const Slurm *m, int64_t row, int64_t entry) {
    return exceeds(s, m, row, entry, COUNTS_JOBS, COUNTS_USED_S);
}

/* Return whether the GPU-minutes of its limits suffice for a job if nothing of them is in use. */
static bool fits_unused(const State *s, const Slurm *m, int64_t row, int64_t entry) {
    if (!m->control->enforces_safe) return true;
    int32_t of_entry = m->claim_class[entry];
    for (int64_t place = m->claim_begin[of_entry]; place < m->claim_begin[of_entry + 1]; place++) {
        const Counter *counter = &m->counters[m->claims[place].counter];
        bool is_checked = m->claims[place].is_checked && counter->kind == COUNTS_USED_S;
        if (is_checked && gpu_seconds(&s->jobs[row]) > counter->bound) return false;
    }
    return true;
}

/* Return whether a limit bounds the number of GPUs of running jobs of an entry. */
static bool bounds_gpus(const Slurm *m, int64_t entry) {
    if (!m->control->has_limits) return false;
    int32_t of_entry = m->claim_class[entry];
    for (int64_t place = m->claim_begin[of_entry]; place < m->claim_begin[of_entry + 1]; place++)
        if (m->claims[place].is_checked && m->counters[m->claims[place].counter].kind == COUNTS_GPUS) return true;
    return false;
}

/* Count a job in the counters of an entry for running jobs, or take it out of them (`sign` -1). */
static void count_run(State *s, Slurm *m, int64_t row, int64_t entry, double sign) {
    if (!m->control->has_limits) return;
    if (sign > 0.0) m->owed_gpu_s[row] = gpu_seconds(&s->jobs[row]);
    int32_t of_entry = m->claim_class[entry];
    for (int64_t place = m->claim_begin[of_entry]; place < m->claim_begin[of_entry + 1]; place++) {
        Counter *counter = &m->counters[m->claims[place].counter];
        if (counter->kind == COUNTS_SUBMITTED) continue;
        double amount = counter->kind == COUNTS_RUN_S ? m->owed_gpu_s[row] : amount_of(s, m, &s->jobs[row], counter->kind);
        counter->used += sign * amount;
    }
}

/* Count a job among those that are submitted and have not ended, or take it out of them (`sign` -1). */
static void count_submitted(State *s, Slurm *m, int64_t row, double sign) {
    (void)s;
    if (!m->control->has_limits) return;
    int32_t of_entry = m->claim_class[row];
    for (int64_t place = m->claim_begin[of_entry]; place < m->claim_begin[of_entry + 1]; place++) {
        Counter *counter = &m->counters[m->claims[place].counter];
        if (counter->kind == COUNTS_SUBMITTED) counter->used += sign;
    }
}

/* Move GPU-seconds of a running job from what it can still use to what has been used. */
static void count_used(Slurm *m, int64_t row, double used) {
    if (!m->control->has_limits) return;
    double owed = least(used, m->owed_gpu_s[row]);
    m->owed_gpu_s[row] -= owed;
    int32_t of_entry = m->claim_class[m->began[row]];
    for (int64_t place = m->claim_begin[of_entry]; place < m->claim_begin[of_entry + 1]; place++) {
        Counter *counter = &m->counters[m->claims[place].counter];
        if (counter->kind == COUNTS_USED_S) counter->used += used;
        if (counter->kind == COUNTS_RUN_S) counter->used -= owed;
    }
}

/* Return whether an entry of the line waits for GPU-minutes that decay gives back. */
static bool awaits_decay(const State *s, const Slurm *m) {
    if (!m->control->has_limits || m->control->half_life_s <= 0.0) return false;
    for (int64_t place = 0; place < m->control->lined; place++) {
        int32_t entry = m->line[place], row = row_of(s, m, entry);
        if (exceeds(s, m, row, entry, COUNTS_USED_S, COUNTS_USED_S) && fits_unused(s, m, row, entry)) return true;
    }
    return false;
}

/* Let the use that counters hold decay. */
static void fade_counters(Slurm *m, double fading) {
    for (int64_t place = 0; place < m->n_counters; place++)
        if (m->counters[place].kind == COUNTS_USED_S) m->counters[place].used *= fading;
}
