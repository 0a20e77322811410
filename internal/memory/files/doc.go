// Package files keeps small files in a directory that only this user may write to.
//
// A file is replaced wholly or not at all, whenever the process is killed, and
// one that somebody else could have written is not believed. Links are not
// followed.
package files
