"""Have a Ray that is imported already read its variables again: it keeps the mode, and a token, that it has read."""

import sys

if "ray" in sys.modules:
    from ray._raylet import AuthenticationTokenLoader, Config

    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()
