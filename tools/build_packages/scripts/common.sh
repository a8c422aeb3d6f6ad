# What the scripts of both package formats share.
MARK=/run/sadvised-was-active

under_systemd() { [ -d /run/systemd/system ]; }

make_account() {
    if command -v systemd-sysusers >/dev/null 2>&1; then
        systemd-sysusers sadvise.conf
    elif ! getent passwd sadvise >/dev/null; then
        useradd --system --user-group --no-create-home --home-dir /var/lib/sadvise --shell /usr/sbin/nologin sadvise
        useradd --system --user-group --groups sadvise --no-create-home --home-dir / --shell /usr/sbin/nologin sadvise-web
    fi
    install -d -o sadvise -g sadvise -m 0711 /var/lib/sadvise
    if under_systemd; then
        systemd-tmpfiles --create sadvise.conf || true
        systemctl daemon-reload || true
    fi
}

# Files are not replaced under a running daemon: it is stopped, reverts what it must, and is started afterwards.
stop_for_upgrade() {
    if under_systemd && systemctl --quiet is-active sadvised.service; then
        : >"$MARK"
        systemctl stop sadvised.service || true
    fi
}

# A daemon that did not run before stays so: to enable and start it is the administrator's act.
start_after_upgrade() {
    if [ -e "$MARK" ]; then
        rm -f "$MARK"
        systemctl start sadvised.service || true
    fi
    if under_systemd; then
        systemctl try-restart sadvise-web.service || true
    fi
}

stop_for_good() {
    if under_systemd; then
        systemctl --quiet disable --now sadvised.service sadvise-web.service || true
    elif command -v systemctl >/dev/null 2>&1; then
        systemctl --quiet disable sadvised.service sadvise-web.service || true
    fi
}

forget_unit() {
    if under_systemd; then
        systemctl daemon-reload || true
    fi
}
