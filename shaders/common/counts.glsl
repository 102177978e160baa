// Counts in an optimizer's state (shaders/params/optim.h).

uint load_digits(uint low, uint high) {
  return (uint(load_state(high)) << 24) + uint(load_state(low));
}

uint load_count(uint slot) { return load_digits(slot, slot + STATE_HIGH); }

// Returns the number of updates of the parameter that has this chunk.
uint own_updates(uint chunk) {
  return load_count(STATE_UPDATES) - load_digits(STATE_MISSED(chunk), STATE_MISSED(chunk) + 1);
}
