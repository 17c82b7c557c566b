#!/bin/sh
# Bring what the tests of the console and its screenshots need of Debian: the browser, and the font
# that the page likes best, so that pictures look the same wherever they are taken. Never fails:
# without the browser, its tests are skipped and say so; without the font, another one is taken.
missing=""
command -v chromium >/dev/null || missing="chromium"
# Without fc-list there is no font either, or nobody knows: then apt-get does.
fc-list : family 2>/dev/null | grep -qx "Inter\(,.*\)\?" || missing="$missing fonts-inter"
[ -n "$missing" ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "not here, and no right to install it: $missing (without chromium, its tests are skipped)"
    exit 0
fi
echo "installing $missing ..."
# shellcheck disable=SC2086  # these are several words
{ apt-get install -y -qq --no-install-recommends $missing \
    || { apt-get update -qq && apt-get install -y -qq --no-install-recommends $missing; }; } \
    >/dev/null 2>&1 \
    || echo "could not be installed: $missing (without chromium, its tests are skipped)"
