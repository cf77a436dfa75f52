#!/bin/sh
# Behaves like the official images as far as docker-compose.yml uses them.
set -e
case "$1" in
postgres)
    export PGDATA=/var/lib/postgresql/data
    as_postgres="setpriv --reuid=postgres --regid=postgres --clear-groups"
    if [ ! -s "$PGDATA/PG_VERSION" ]; then
        chown postgres "$PGDATA" && chmod 700 "$PGDATA"
        $as_postgres initdb -D "$PGDATA" -U postgres --encoding UTF8 --locale C.UTF-8 >/dev/null
        echo "host all all all scram-sha-256" >>"$PGDATA/pg_hba.conf"
        echo "CREATE ROLE \"$POSTGRES_USER\" LOGIN PASSWORD '$POSTGRES_PASSWORD'" |
            $as_postgres postgres --single -D "$PGDATA" postgres >/dev/null
        echo "CREATE DATABASE \"$POSTGRES_DB\" OWNER \"$POSTGRES_USER\"" |
            $as_postgres postgres --single -D "$PGDATA" postgres >/dev/null
    fi
    exec $as_postgres \
        postgres -D "$PGDATA" -c 'listen_addresses=*' -c unix_socket_directories=/tmp
    ;;
redis-server)
    shift
    chown redis /data && cd /data
    exec setpriv --reuid=redis --regid=redis --clear-groups redis-server --bind 0.0.0.0 --protected-mode no "$@"
    ;;
prometheus)
    exec setpriv --reuid=prometheus --regid=prometheus --clear-groups \
        prometheus --config.file=/etc/prometheus/prometheus.yml --storage.tsdb.path=/prometheus
    ;;
--port) # versitygw's arguments
    exec /opt/s3/bin/python /usr/local/bin/s3_server.py
    ;;
*)
    exec "$@"
    ;;
esac
