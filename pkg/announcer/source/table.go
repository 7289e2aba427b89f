package source

import (
	"fmt"
	"reflect"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// table is the store of a reflector. Of each object it keeps only what convert
// makes of it, so that a big cluster fits into a small announcer, and it
// notices only changes of that: a heartbeat or a foreign annotation is none.
type table[O metav1.Object, T any] struct {
	convert func(O) (T, bool)                       // false: the object does not matter
	changed func(key string, before, after *T) bool // tells whether a pass should look at it
	kick    func()

	mu     *sync.Mutex // of the World; held while changed runs
	rows   map[string]T
	synced bool
}

// object carries a converted row through the reflector's own stores, which
// want an object with a name.
type object[T any] struct {
	metav1.ObjectMeta
	row  T
	keep bool
}

var _ cache.TransformingStore = (*table[metav1.Object, int])(nil)

// Transformer makes the reflector's first list take no more memory than the table.
func (t *table[O, T]) Transformer() cache.TransformFunc {
	return func(in any) (any, error) { return t.trim(in) }
}

func (t *table[O, T]) trim(in any) (*object[T], error) {
	switch o := in.(type) {
	case *object[T]:
		return o, nil
	case O:
		row, keep := t.convert(o)
		return &object[T]{ObjectMeta: metav1.ObjectMeta{
			Namespace: o.GetNamespace(), Name: o.GetName(), ResourceVersion: o.GetResourceVersion(),
		}, row: row, keep: keep}, nil
	default:
		return nil, fmt.Errorf("unexpected %T", in)
	}
}

// Add notes a new object.
func (t *table[O, T]) Add(in any) error {
	o, err := t.trim(in)
	if err != nil {
		return err
	}
	t.mu.Lock()
	kick := t.set(o)
	t.mu.Unlock()
	if kick {
		t.kick()
	}
	return nil
}

// Update notes a changed object.
func (t *table[O, T]) Update(in any) error { return t.Add(in) }

// Delete notes that an object is gone.
func (t *table[O, T]) Delete(in any) error {
	o, err := t.trim(in)
	if err != nil {
		return err
	}
	o.keep = false
	return t.Add(o)
}

// Replace notes a whole list. It kicks at the first one even if that is empty,
// because from then on the table is known.
func (t *table[O, T]) Replace(list []any, _ string) error {
	objects := make(map[string]*object[T], len(list))
	for _, in := range list {
		o, err := t.trim(in)
		if err != nil {
			return err
		}
		objects[key(o)] = o
	}
	t.mu.Lock()
	kick := !t.synced
	t.synced = true
	for k, row := range t.rows {
		if _, ok := objects[k]; !ok {
			delete(t.rows, k)
			kick = t.changed(k, &row, nil) || kick
		}
	}
	for _, o := range objects {
		kick = t.set(o) || kick
	}
	t.mu.Unlock()
	if kick {
		t.kick()
	}
	return nil
}

// Resync does nothing: a table has no consumers that could have missed a change.
func (t *table[O, T]) Resync() error { return nil }

// set applies one object and tells whether a pass should look at it.
func (t *table[O, T]) set(o *object[T]) bool {
	k := key(o)
	before, had := t.rows[k]
	switch {
	case !o.keep && !had:
		return false
	case !o.keep:
		delete(t.rows, k)
		return t.changed(k, &before, nil)
	case !had:
		t.rows[k] = o.row
		return t.changed(k, nil, &o.row)
	case reflect.DeepEqual(before, o.row):
		return false
	default:
		t.rows[k] = o.row
		return t.changed(k, &before, &o.row)
	}
}

func key(o metav1.Object) string {
	if o.GetNamespace() == "" {
		return o.GetName()
	}
	return o.GetNamespace() + "/" + o.GetName()
}
