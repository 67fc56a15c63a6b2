package judge

// cache keeps recently used entries, at most twice its size. The zero value keeps nothing before set is called. Not safe
// for concurrent use.
type cache[K comparable, V any] struct {
	most       int
	young, old map[K]V
}

func newCache[K comparable, V any](most int) *cache[K, V] {
	return &cache[K, V]{most: most, young: map[K]V{}}
}

func (c *cache[K, V]) get(k K) (V, bool) {
	v, found := c.young[k]
	if !found {
		if v, found = c.old[k]; found {
			c.set(k, v)
		}
	}
	return v, found
}

func (c *cache[K, V]) set(k K, v V) {
	if len(c.young) >= c.most {
		c.young, c.old = map[K]V{}, c.young
	}
	c.young[k] = v
}
