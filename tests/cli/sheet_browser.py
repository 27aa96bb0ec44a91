#!/usr/bin/env python3
"""sheet_browser.py PAGE...: opens contact sheets from disk in Chromium, light and dark, wide and narrow."""
import sys

from report_browser import shown, start

driver = start()
try:
    for page in sys.argv[1:]:
        colours = set()
        for width in (390, 1400):
            for scheme in ("light", "dark"):
                colours.add(shown(driver, page, width, scheme))
                broken = driver.execute_script(
                    "return [].filter.call(document.images, function (i) { return !i.complete || !i.naturalWidth; }).length"
                )
                assert not broken, f"{page}: {broken} images are not shown"
        assert len(colours) == 2, f"{page}: light and dark are the same"
        outside = driver.execute_script("return performance.getEntriesByType('resource').map(function (r) { return r.name; })")
        assert not [name for name in outside if not name.startswith("data:")], f"{page}: {outside}"
finally:
    driver.quit()
