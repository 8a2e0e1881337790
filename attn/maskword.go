package attn

import (
	"fmt"
	"strconv"
	"strings"
)

// maskWords are the words that ParseMask reads, for errors.
const maskWords = "causal, full, window:LEFT[,RIGHT], prefix:N or block-causal:N"

// ParseMask reads a mask by its word and returns what makes it for a number of tokens, of the whole
// sequence or of one document (Documents):
//
//	causal, full          as the functions of that name
//	window:LEFT[,RIGHT]   Window; RIGHT is 0 if not given, -1 is unlimited on either side
//	prefix:N              Prefix of N keys
//	block-causal:N        BlockCausal of blocks of N
//
// Numbers may end in K, M or G, powers of 1024. An error names the word and says what to write.
func ParseMask(word string) (func(tokens int) Mask, error) {
	name, value, hasValue := strings.Cut(word, ":")
	switch {
	case word == "causal":
		return func(tokens int) Mask { return Causal(tokens, tokens) }, nil
	case word == "full":
		return func(tokens int) Mask { return Full(tokens, tokens) }, nil
	case name == "window" && hasValue:
		return parseWindow(word, value)
	case (name == "prefix" || name == "block-causal") && hasValue:
		n, ok := parseSize(value)
		if !ok || n < 0 || n == 0 && name == "block-causal" {
			least := 0
			if name == "block-causal" {
				least = 1
			}
			return nil, fmt.Errorf("attn: mask %q: %q must be a number of tokens, %d to %d", word,
				value, least, MaxTokens)
		}
		if name == "prefix" {
			return func(tokens int) Mask { return Prefix(n, tokens) }, nil
		}
		return func(tokens int) Mask { return BlockCausal(n, tokens) }, nil
	}
	return nil, fmt.Errorf("attn: mask %q is unknown: write %s", word, maskWords)
}

// parseWindow reads LEFT[,RIGHT].
func parseWindow(word, value string) (func(tokens int) Mask, error) {
	leftText, rightText, both := strings.Cut(value, ",")
	if !both {
		rightText = "0"
	}
	var sides [2]int
	for n, text := range []string{leftText, rightText} {
		x, ok := parseSize(text)
		if !ok || x < -1 {
			return nil, fmt.Errorf("attn: mask %q: %q must be a number of tokens, 0 to %d, or -1 "+
				"for no limit", word, text, MaxTokens)
		}
		sides[n] = x
	}
	return func(tokens int) Mask { return Window(tokens, tokens, sides[0], sides[1]) }, nil
}

// parseSize reads a whole number that may end in K, M or G and is at most MaxTokens in size.
func parseSize(text string) (n int, ok bool) {
	shift := 0
	for i, unit := range []string{"K", "M", "G"} {
		if number, found := strings.CutSuffix(text, unit); found {
			text, shift = number, 10*(i+1)
		}
	}
	n, err := strconv.Atoi(text)
	if err != nil || n > MaxTokens>>shift || n < -(MaxTokens>>shift) {
		return 0, false
	}
	return n << shift, true
}
