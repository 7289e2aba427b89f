package migrate

import (
	"net/netip"
	"regexp/syntax"
	"strings"

	"go4.org/netipx"
)

// edges returns the first and the last address of a CIDR that has more than
// two.
func edges(text string) (first, last string, ok bool) {
	prefix, err := netip.ParsePrefix(text)
	if err != nil || prefix.Addr().BitLen()-prefix.Bits() < 2 {
		return "", "", false
	}
	whole := netipx.RangeOfPrefix(prefix)
	return whole.From().String(), whole.To().String(), true
}

// glob returns the glob that matches exactly the names that an expression
// matches somewhere inside, and whether there is one.
func glob(expression string) (string, bool) {
	parsed, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		return "", false
	}
	parts := []*syntax.Regexp{parsed}
	if parsed.Op == syntax.OpConcat {
		parts = parsed.Sub
	}
	before, after := "*", "*"
	if len(parts) > 0 && parts[0].Op == syntax.OpBeginText {
		before, parts = "", parts[1:]
	}
	if n := len(parts); n > 0 && parts[n-1].Op == syntax.OpEndText {
		after, parts = "", parts[:n-1]
	}
	out := before
	for i, p := range parts {
		text, ok := piece(p, after != "" && i == len(parts)-1)
		if !ok {
			return "", false
		}
		out += text
	}
	out += after
	for strings.Contains(out, "**") {
		out = strings.ReplaceAll(out, "**", "*")
	}
	return out, out != ""
}

// piece returns the glob of a part of an expression; open says that anything
// may follow it.
func piece(p *syntax.Regexp, open bool) (string, bool) {
	switch p.Op {
	case syntax.OpEmptyMatch:
		return "", true
	case syntax.OpLiteral:
		text := string(p.Rune)
		return text, p.Flags&syntax.FoldCase == 0 && !strings.ContainsAny(text, `*?[]\/`)
	case syntax.OpAnyCharNotNL, syntax.OpAnyChar:
		return "?", true
	case syntax.OpCharClass:
		return class(p.Rune)
	case syntax.OpStar, syntax.OpPlus, syntax.OpQuest:
		return repeated(p, open)
	}
	return "", false
}

// repeated returns the glob of a repetition: of any character, or of whatever
// if anything may follow anyway.
func repeated(p *syntax.Regexp, open bool) (string, bool) {
	sub := p.Sub[0]
	any := sub.Op == syntax.OpAnyCharNotNL || sub.Op == syntax.OpAnyChar
	switch {
	case p.Op == syntax.OpStar && any, p.Op != syntax.OpPlus && open:
		return "*", true
	case p.Op == syntax.OpPlus && (any || open):
		text, ok := piece(sub, false)
		return text + "*", ok
	}
	return "", false
}

// class returns the glob of a set of characters: letters, digits, and what
// means nothing inside of brackets.
func class(pairs []rune) (string, bool) {
	var b strings.Builder
	b.WriteByte('[')
	for i := 0; i+1 < len(pairs); i += 2 {
		for _, r := range pairs[i : i+2] {
			if r < '.' || r > 'z' || strings.ContainsRune(`[]\^/:`, r) {
				return "", false
			}
		}
		b.WriteRune(pairs[i])
		if pairs[i+1] != pairs[i] {
			b.WriteByte('-')
			b.WriteRune(pairs[i+1])
		}
	}
	b.WriteByte(']')
	return b.String(), len(pairs) > 0
}

// interfaces turns expressions into globs. One that is none is a loss.
func (o *object) interfaces(key string) []string {
	var out []string
	for _, expression := range o.words(key) {
		out = append(out, o.globs(key, expression)...)
	}
	return out
}

// globs turns one expression into globs.
func (o *object) globs(key, expression string) []string {
	text, ok := glob(expression)
	out := []string{text}
	if head, found := strings.CutSuffix(text, "]*"); found {
		out = []string{head + "]", head + "]?*"} // a document takes ]* for an expression
	}
	if !ok || strings.Contains(strings.Join(out, " "), "]*") {
		o.lose(key, "the expression %q is no glob; name the interfaces in layer2.interfaces", expression)
		return nil
	}
	if text != expression {
		o.note(key, "the expression %q is %s as globs, because it matches anywhere in a name unless it has ^ and $", expression, quoted(out))
	}
	return out
}
