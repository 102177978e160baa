// A row's target distribution, smoothed and weighted: given per class, or as the class (i32).
layout(constant_id = 0) const bool WEIGHTED = false;

#if !U_FLOAT
bool is_ignored(uint row) { return load_target(row) == p.ignore_index; }
bool is_outside(uint row) {
  int t = load_target(row);
  return t != p.ignore_index && (t < 0 || t >= int(p.cols));
}
#endif

float share(uint row, uint c) {
#if U_FLOAT
  float part = load_target(row * p.cols + c);
#else
  float part = load_target(row) == int(c) ? 1.0 : 0.0;
#endif
  part = (1.0 - p.smoothing) * part + p.smoothing / p.cols;
  return WEIGHTED ? load_weight(c) * part : part;
}
