from tests.browser import chromium as chromium
