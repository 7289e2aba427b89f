package membership

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

const (
	// keyContext separates the gossip key from anything else that may ever be
	// derived from the same secret. Changing it separates old from new members.
	keyContext = "ccm-baremetal.io/gossip/v1"

	// idContext is for what a key is called when members tell which they hold.
	idContext  = "ccm-baremetal.io/gossip/v1/id"
	keyIDBytes = 4

	// maxKeys is how many keys may be held at a time.
	maxKeys = 8

	// keyGrace is for how long a key that was taken away is accepted, and at
	// most goes on signing. A member that has not heard of the change by then
	// is shut out.
	keyGrace = 10 * time.Minute
)

// key is one key of the gossip.
type key struct {
	id     string
	bytes  []byte
	aead   cipher.AEAD
	wanted bool      // it is among those that were set
	until  time.Time // not wanted: accepted until then
}

// newKey derives a key from a secret of any length.
func newKey(secret []byte) (key, error) {
	if len(secret) == 0 {
		return key{}, errors.New("key is empty")
	}
	raw, err := hkdf.Key(sha256.New, secret, nil, keyContext, sha256.Size)
	if err != nil {
		return key{}, fmt.Errorf("derive the gossip key: %w", err)
	}
	id, err := hkdf.Key(sha256.New, secret, nil, idContext, keyIDBytes)
	if err != nil {
		return key{}, fmt.Errorf("derive the identity of the gossip key: %w", err)
	}
	block, err := aes.NewCipher(raw)
	if err != nil {
		return key{}, fmt.Errorf("use the gossip key: %w", err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return key{}, fmt.Errorf("use the gossip key: %w", err)
	}
	return key{id: string(id), bytes: raw, aead: aead, wanted: true}, nil
}

// keys are the keys of the gossip: all of them are accepted, one signs. The
// zero value without a ring is clear text.
type keys struct {
	ring *memberlist.Keyring // nil: clear text

	mu     sync.Mutex
	held   []key
	signer string // identity of the one that signs
	first  string // identity of the one that is to sign
}

// newKeys makes the keys from secrets, the one that is to sign first. Until
// others are known to hold that one, the last of them signs: it is the oldest.
func newKeys(secrets [][]byte) (*keys, error) {
	k := &keys{}
	if secrets == nil {
		return k, nil
	}
	held, err := derive(secrets)
	if err != nil {
		return nil, err
	}
	last := held[len(held)-1]
	k.ring, err = memberlist.NewKeyring(nil, last.bytes)
	if err != nil {
		return nil, fmt.Errorf("make the keyring: %w", err)
	}
	k.signer = last.id
	return k, k.set(held, time.Time{})
}

// derive makes the keys of secrets.
func derive(secrets [][]byte) ([]key, error) {
	if len(secrets) == 0 || len(secrets) > maxKeys {
		return nil, fmt.Errorf("there are %d gossip keys, want 1 to %d", len(secrets), maxKeys)
	}
	var out []key
	for _, secret := range secrets {
		one, err := newKey(secret)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(out, func(k key) bool { return k.id == one.id }) {
			out = append(out, one)
		}
	}
	return out, nil
}

// set replaces the keys. Those that are not among them any more are accepted
// for a while.
func (k *keys) set(wanted []key, now time.Time) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	next := slices.Clone(wanted)
	for _, old := range k.held {
		if slices.ContainsFunc(wanted, func(w key) bool { return w.id == old.id }) {
			continue
		}
		if old.wanted {
			old.wanted, old.until = false, now.Add(keyGrace)
		}
		next = append(next, old)
	}
	k.held, k.first = next, wanted[0].id
	for _, one := range wanted {
		if err := k.ring.AddKey(one.bytes); err != nil {
			return fmt.Errorf("add a gossip key: %w", err)
		}
	}
	return nil
}

// holds returns the identities of the keys that were set, as they are told.
func (k *keys) holds() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out strings.Builder
	for _, one := range k.held {
		if one.wanted {
			out.WriteString(one.id)
		}
	}
	return out.String()
}

// pending tells whether review has anything to do.
func (k *keys) pending() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ring != nil && (k.signer != k.first || slices.ContainsFunc(k.held, func(one key) bool { return !one.wanted }))
}

// review lets the first key sign once all others hold it, or the one that
// signs has had its time, and drops keys that have. holdings are what each
// other member says it holds. It reports whether another key signs now.
func (k *keys) review(holdings []string, now time.Time) (changed bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	signer := k.find(k.signer)
	if k.signer != k.first && (allHold(holdings, k.first) || !signer.wanted && !now.Before(signer.until)) {
		if err := k.ring.UseKey(k.find(k.first).bytes); err != nil {
			return false, fmt.Errorf("sign with another gossip key: %w", err)
		}
		k.signer, changed = k.first, true
	}
	var kept []key
	for _, one := range k.held {
		if one.wanted || now.Before(one.until) || one.id == k.signer {
			kept = append(kept, one)
			continue
		}
		if err := k.drop(one); err != nil {
			return changed, fmt.Errorf("remove a gossip key: %w", err)
		}
	}
	k.held = kept
	return changed, nil
}

// drop takes a key off the ring. memberlist (v0.7.0) moves what follows it
// within a list that others are reading. So the key becomes the last first: to
// use a key puts it before all others.
func (k *keys) drop(one key) error {
	ring := k.ring.GetKeys()
	at := slices.IndexFunc(ring, func(b []byte) bool { return bytes.Equal(b, one.bytes) })
	for i := at + 1; i < len(ring); i++ {
		if err := k.ring.UseKey(ring[i]); err != nil {
			return err
		}
	}
	if at+1 < len(ring) {
		if err := k.ring.UseKey(ring[0]); err != nil {
			return err
		}
	}
	return k.ring.RemoveKey(one.bytes)
}

// find returns the key with an identity, which is held.
func (k *keys) find(id string) key {
	return k.held[slices.IndexFunc(k.held, func(one key) bool { return one.id == id })]
}

// allHold tells whether there are others and each says that it holds a key.
// Whoever is alone does not know whether nobody is there or nobody understands.
func allHold(holdings []string, id string) bool {
	return len(holdings) > 0 && !slices.ContainsFunc(holdings, func(held string) bool { return !contains(held, id) })
}

// contains looks for an identity among those that a member tells.
func contains(held, id string) bool {
	for part := range slices.Chunk([]byte(held), keyIDBytes) {
		if bytes.Equal(part, []byte(id)) {
			return true
		}
	}
	return false
}

// authentic tells whether a payload was made with one of the keys, for a label.
// The format is memberlist's: a version, a nonce of 12 bytes, the ciphertext.
func (k *keys) authentic(payload, label []byte) bool {
	const version, nonce = 1, 12
	if len(payload) < version+nonce {
		return false
	}
	k.mu.Lock()
	held := k.held
	k.mu.Unlock()
	for _, one := range held {
		if _, err := one.aead.Open(nil, payload[version:version+nonce], payload[version+nonce:], label); err == nil {
			return true
		}
	}
	return false
}
