#!/usr/bin/env bash
# nginx.sh FOLDER: nginx's program into FOLDER (0.5 MB of Debian's package), for the test of docs/deploy/nginx.conf.
# Nothing is installed into the system: the package would start a server on port 80. Without apt that test is skipped.
set -euo pipefail
folder=$1
[[ -x $folder/nginx ]] && exit 0
if found=$(PATH="$PATH:/usr/sbin" command -v nginx); then
    mkdir -p "$folder" && ln -sfn "$found" "$folder/nginx"
    exit 0
fi
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || exit 1
below=$(mktemp -d)
trap 'rm -rf "$below"' EXIT
cd "$below"
[[ $(id -u) != 0 ]] || apt-get update -qq >/dev/null 2>&1 || true
for package in nginx nginx-core; do # Ubuntu's nginx holds no program
    apt-get download -qq "$package" >/dev/null 2>&1 && dpkg-deb -x "$package"_*.deb . || continue
    if [[ -x usr/sbin/nginx ]] && ./usr/sbin/nginx -v 2>/dev/null; then
        cd - >/dev/null
        mkdir -p "$folder" && cp "$below/usr/sbin/nginx" "$folder/nginx"
        exit 0
    fi
done
exit 1
