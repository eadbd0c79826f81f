package main

import "slices"

// Spread is what several rounds gave.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

func spread(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	s := slices.Sorted(slices.Values(values))
	return Spread{Median: (s[(len(s)-1)/2] + s[len(s)/2]) / 2, Min: s[0], Max: s[len(s)-1]}
}
