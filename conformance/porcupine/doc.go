// Package porcupine compares the verdicts of package history with those of Porcupine, a
// general checker of linearizability, on generated histories. It is a module of its own,
// and holds nothing but tests, so that nobody who imports the suite needs Porcupine.
package porcupine
