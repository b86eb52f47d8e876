"""Commands that the rights of files bind, also where the tests run as root."""

# Root without capabilities is bound by the rights of files, as every other user is.
BOUND = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")
