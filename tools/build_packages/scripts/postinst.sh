case "$1" in
    configure)
        make_account
        start_after_upgrade
        ;;
    abort-upgrade | abort-remove | abort-deconfigure)
        start_after_upgrade
        ;;
esac
