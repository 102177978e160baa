// The normalisation kernels: a thread has 8 channels of BATCH_NORM_ROWS rows of [rows, channels].

// Tells whether the 8 channels from c exist and can move in 16-byte words.
bool whole_channels(uint offsets) { return (p.channels | offsets) % 8 == 0; }

vec4 inverse_deviation(vec4 var) { return NORM_SCALE / sqrt(var + p.eps * NORM_SCALE * NORM_SCALE); }
float inverse_deviation(float var) { return NORM_SCALE / sqrt(var + p.eps * NORM_SCALE * NORM_SCALE); }
