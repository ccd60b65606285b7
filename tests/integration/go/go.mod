module leveret/tests/shovels

go 1.23.0

require github.com/michaelklishin/rabbit-hole/v3 v3.2.0
