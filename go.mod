module github.com/lbd-project/lbd

go 1.26
