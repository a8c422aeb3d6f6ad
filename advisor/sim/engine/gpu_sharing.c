/* Two jobs on the same GPUs: a guest beside its host. */

/* Start a pending job on the GPUs of a running one that holds as many as it requests. */
EXPORT void start_as_guest(State *s, int64_t row, int64_t host, double now) {
    Job *job = &s->jobs[row], *owner = &s->jobs[host];
    for (int64_t place = 0; place < owner->span; place++) {
        s->held_nodes[job->pool + place] = s->held_nodes[owner->pool + place];
        s->held_gpus[job->pool + place] = s->held_gpus[owner->pool + place];
        join(s, row, s->held_nodes[job->pool + place]);
    }
    job->held = owner->held;
    job->span = owner->span;
    job->tier = owner->tier;
    job->is_guest = 1;
    job->partner = (int32_t)host;
    owner->partner = (int32_t)row;
    count_as_sender(s, row, 1);
    begin(s, row, now);
    repace(s, host, now);
}

/* Start pending jobs on the GPUs of running ones that hold as many. */
EXPORT void share_gpus(State *s, const Integers *rows, const Integers *hosts, double now) {
    for (int64_t place = 0; place < rows->n_items; place++) start_as_guest(s, rows->items[place], hosts->items[place], now);
}
