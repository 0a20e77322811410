package config

// closest returns the word that was likely meant: the one at the smallest edit
// distance, at most a third of its length and never more than two.
func closest(word string, words []string) (string, bool) {
	best, bestDistance := "", 3
	for _, w := range words {
		if d := distance(word, w); d < bestDistance && 3*d <= len(w)+1 {
			best, bestDistance = w, d
		}
	}
	return best, best != ""
}

// distance is the number of insertions, deletions, replacements and swaps of
// neighbours between a and b; 3 for more than two.
func distance(a, b string) int {
	const far = 3
	if len(a)-len(b) >= far || len(b)-len(a) >= far || len(a) > 64 {
		return far
	}
	var before, row []int
	next := make([]int, len(b)+1)
	for j := range next {
		next[j] = j
	}
	for i := range len(a) {
		before, row, next = row, next, make([]int, len(b)+1)
		next[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next[j+1] = min(row[j+1]+1, next[j]+1, row[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
	}
	return min(next[len(b)], far)
}
