// Stock lavapipe silently leaves any loop after 65535 iterations: a longer one is a loop over parts.
#define LOOP_LIMIT 32768u

// for (uint i = begin; i < end; i += step) of any length; `break` leaves a part only.
#define LONG_LOOP(i, begin, end, step)                                                          \
  for (uint part = (begin); part < (end); part += LOOP_LIMIT * (step))                          \
    for (uint i = part, i_end = min((end), part + LOOP_LIMIT * (step)); i < i_end; i += (step))
