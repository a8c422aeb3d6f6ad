/* The loop of policies that keep one queue and place jobs themselves.
 *
 * Pending jobs stand in one heap per shape of request: if the first job of a shape does not fit, no other of that shape
 * does, so that a decision examines shapes and not the whole queue.
 */

/* Return the level of a multi-level queue for the GPU-time attained. */
static int64_t level_of(const Queue *q, double attained_gpu_s) {
    int64_t level = 0;
    /* A level ends where its limit is reached, up to the error of sums. */
    while (level < q->n_levels_gpu_s && attained_gpu_s >= q->levels_gpu_s[level] * (1.0 - 1e-12)) level++;
    return level;
}

static double weight_of(const State *s, const Queue *q, int64_t row) {
    return q->rules->by_gpus ? s->jobs[row].gpus : 1.0;
}

static double given_key(const State *s, const Queue *q, int64_t row) {
    (void)s;
    return q->given[row];
}

static double remaining_key(const State *s, const Queue *q, int64_t row) {
    const Job *job = &s->jobs[row];
    return job->believed_s * job->left_s / job->work_s * weight_of(s, q, row);
}

static double predicted_key(const State *s, const Queue *q, int64_t row) {
    int32_t group = q->group[row];
    if (q->group_count[group] == 0) return s->jobs[row].believed_s * weight_of(s, q, row);
    return q->group_sum_s[group] / (double)q->group_count[group] * weight_of(s, q, row);
}

static double attained_key(const State *s, const Queue *q, int64_t row) {
    return (double)level_of(q, s->jobs[row].attained_gpu_s);
}

/* The sort keys in the order of `Key`, from the booked progress of a job. */
static double (*const KEYS[])(const State *, const Queue *, int64_t) = {
    given_key, remaining_key, predicted_key, attained_key,
};

static double key_of(const State *s, const Queue *q, int64_t row) { return KEYS[q->rules->key](s, q, row); }

static Heap shape_heap(State *s, Queue *q, int64_t shape) {
    return (Heap){q->order + q->base[shape], s->jobs, offsetof(Job, key), offsetof(Job, queue_slot)};
}

static void enqueue(State *s, Queue *q, int64_t row, double now) {
    Job *job = &s->jobs[row];
    double promote_ratio = q->rules->promote_ratio;
    job->phase = PENDING;
    job->key = key_of(s, q, row);
    if (promote_ratio > 0.0 && job->key > 0.0) {
        job->watch_time = now + promote_ratio * (job->attained_gpu_s / job->gpus);
        set_timer(s, row);
    }
    Heap heap = shape_heap(s, q, job->shape);
    q->length[job->shape] = heap_push(&heap, q->length[job->shape], (int32_t)row);
}

static void dequeue(State *s, Queue *q, int64_t row) {
    int32_t shape = s->jobs[row].shape;
    Heap heap = shape_heap(s, q, shape);
    q->length[shape] = heap_remove(&heap, q->length[shape], (int32_t)row);
}

static void submit_to_queue(State *s, Queue *q, int64_t row, double now) {
    Job *job = &s->jobs[row];
    if (job->phase != FUTURE) {
        s->tally->ended++; /* it can never fit */
        return;
    }
    job->since_time = now;
    s->tally->pending++;
    enqueue(s, q, row, now);
}

/* Set the timer of a running job to when it reaches the limit of its level. */
static void watch_level(State *s, Queue *q, int64_t row, double now) {
    Job *job = &s->jobs[row];
    int64_t level = level_of(q, job->attained_gpu_s);
    if (level < q->n_levels_gpu_s) job->watch_time = now + (q->levels_gpu_s[level] - job->attained_gpu_s) / job->held;
    set_timer(s, row);
}

/* Handle a job of a queue whose timer is due: it ends, sinks a level, or is promoted. */
static void handle_timer(State *s, Queue *q, int64_t row, double now) {
    Job *job = &s->jobs[row];
    int64_t how = expired(s, row);
    if (how != END_NOT) {
        end(s, row, now, how);
        q->group_sum_s[q->group[row]] += job->work_s;
        q->group_count[q->group[row]]++;
        return;
    }
    job->watch_time = INFINITY;
    if (job->phase == PENDING) {
        dequeue(s, q, row);
        job->attained_gpu_s = 0.0;
        set_timer(s, row);
        enqueue(s, q, row, now);
    } else {
        book(s, row, now);
        watch_level(s, q, row, now);
    }
}

/* Pick nodes for a job, close together unless it is one that takes GPUs wherever they are. */
static bool pick_for(State *s, Queue *q, int64_t row) {
    int32_t gpus = s->jobs[row].gpus;
    return pick(s, row, gpus) || (q->spread[row] && pick_anywhere(s, row, gpus));
}

/* Return the first job in the order among the shapes that are not blocked. */
static int32_t first_in_line(const State *s, const Queue *q) {
    int32_t best = NONE;
    for (int64_t shape = 0; shape < q->n_length; shape++) {
        if (q->length[shape] == 0 || q->blocked[shape]) continue;
        int32_t row = q->order[q->base[shape]];
        double key = s->jobs[row].key;
        if (best == NONE || key < s->jobs[best].key || (key == s->jobs[best].key && row < best)) best = row;
    }
    return best;
}

/* Preempt later running jobs so that a job fits, and pick its nodes; return false if preemption does not help. */
static bool preempt_for(State *s, Queue *q, Victims *v, int64_t row, double now) {
    for (int64_t place = 0; place < s->tally->running; place++) {
        int32_t other = s->running[place];
        book(s, other, now);
        s->jobs[other].key = key_of(s, q, other);
    }
    double key = s->jobs[row].key;
    int64_t count = q->spread[row] ? make_room_anywhere(s, v, row, key) : make_room(s, v, row, key);
    for (int64_t place = 0; place < count; place++) {
        preempt(s, v->rows[place], now);
        enqueue(s, q, v->rows[place], now);
    }
    return count > 0 && pick_for(s, q, row);
}

/* Start the jobs that fit, in order. */
static void start_in_order(State *s, Queue *q, Victims *v, double now) {
    memset(q->blocked, 0, (size_t)q->n_blocked);
    while (s->tally->pending > 0) {
        int32_t row = first_in_line(s, q);
        if (row == NONE) return;
        if (pick_for(s, q, row) || (q->rules->is_preemptive && preempt_for(s, q, v, row, now))) {
            dequeue(s, q, row);
            s->jobs[row].watch_time = INFINITY;
            start(s, row, now);
            if (q->n_levels_gpu_s > 0) watch_level(s, q, row, now);
        } else if (q->rules->is_strict) {
            return;
        } else {
            q->blocked[s->jobs[row].shape] = 1;
        }
    }
}

/* Run until all jobs have ended (DONE), `until` (PAUSED), or the segments are full (FULL). */
EXPORT int64_t run_queue(State *s, Queue *q, Victims *v, double until) {
    Tally *tally = s->tally;
    for (;;) {
        if (s->n_segments - tally->segments < tally->running + 2) return FULL;
        double now = next_instant(s);
        if (now == INFINITY) return DONE;
        if (now > until) {
            tally->now = until;
            return PAUSED;
        }
        tally->now = now;
        while (tally->timers > 0 && s->jobs[s->timers[0]].timer <= now) handle_timer(s, q, s->timers[0], now);
        for (int64_t victim; (victim = next_victim(s, now)) != NONE;) {
            preempt(s, victim, now);
            enqueue(s, q, victim, now);
        }
        while (tally->arrived < s->n_jobs && s->jobs[tally->arrived].submit_time <= now) {
            submit_to_queue(s, q, tally->arrived, now);
            tally->arrived++;
        }
        start_in_order(s, q, v, now);
    }
}
