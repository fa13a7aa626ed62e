#!/bin/sh
# The page in headless Chromium: light, dark, phone, the cursor moved by keys, and print. Fails on any console message. By hand:
#     sh tests/viewers/html_chromium.sh FOLDER MODEL [OPTION..]       then look at FOLDER/*.png and print.pdf
out=$1
shift
mkdir -p "$out"
build/memcrest estimate "$@" --allow-incomplete -q -f html -o "$out/page.html" || exit 1
# a copy whose script ends with what a person with a keyboard does
sed 's|</script></body></html>|;(function(){var t=document.getElementById("timeline");t.focus();["Enter","ArrowLeft"].forEach(function(k){t.dispatchEvent(new KeyboardEvent("keydown",{key:k}))});document.querySelector(".tools button").click();document.querySelectorAll("#modules thead button")[1].click();})()&|' "$out/page.html" >"$out/used.html"

shot() {
	chromium --headless=new --no-sandbox --disable-gpu --hide-scrollbars --enable-logging=stderr "$@" 2>&1 | grep -E "CONSOLE|written to file"
}
{
	shot --window-size=1200,3600 --screenshot="$out/light.png" "file://$out/page.html"
	shot --window-size=1200,3600 --blink-settings=preferredColorScheme=0 --screenshot="$out/dark.png" "file://$out/page.html"
	shot --window-size=390,3600 --screenshot="$out/phone.png" "file://$out/page.html"
	shot --window-size=1200,2600 --screenshot="$out/used.png" "file://$out/used.html"
	shot --print-to-pdf="$out/print.pdf" "file://$out/page.html"
} | tee "$out/log"
! grep -q CONSOLE "$out/log"
