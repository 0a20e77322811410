package main

import "flag"

var update = flag.Bool("update", false, "rewrite the scripts and the files in packaging")
