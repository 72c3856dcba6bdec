"""Has an imported Ray read mode and token again, both of which it keeps."""

import sys

if "ray" in sys.modules:
    from ray._raylet import AuthenticationTokenLoader, Config

    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()
