// Precompiled: parsing what every file of the door includes takes most of its build.
#include "../modules.h"
