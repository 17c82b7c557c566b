#!/bin/sh
# Bring the browser that the tests of the console drive: Debian's chromium. Never fails: without a
# browser, its tests are skipped and say so.
command -v chromium >/dev/null && exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "no chromium, and no right to install it: the tests in a browser will be skipped"
    exit 0
fi
echo "installing chromium ..."
{ apt-get install -y -qq --no-install-recommends chromium \
    || { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; }; } \
    >/dev/null 2>&1 \
    || echo "chromium could not be installed: the tests in a browser will be skipped"
