// The module of Python: every file of the door binds its part.
#include "python/door/door.h"

NB_MODULE(_door, m) {
  m.attr("__name__") = "rewind";  // types and functions say where people find them
  nanobind::set_leak_warnings(false);
  door::bind_errors(m);
  door::bind_dtypes(m);
  door::bind_devices(m);
  door::bind_tensor(m);
  door::bind_modules(m);
  door::bind_optimizers(m);
  door::bind_memory(m);
  door::bind_files(m);
  m.attr("__name__") = "rewind._door";
  m.attr("__version__") = REWIND_VERSION;
}
