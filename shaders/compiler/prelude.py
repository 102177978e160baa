"""Writes the GLSL in front of a kernel: parameters, bindings and their accessors."""

DTYPES = ("f32", "f16", "i32", "u8")  # what is written for f16 runs for bf16 too: see BRAIN
ALIGN = {"uint": 4, "float": 4, "int": 4, "float16_t": 2, "uint16_t": 2, "f16vec4": 8, "uvec2": 8, "uvec4": 16}

TEXELS = 8  # binding i is there again as texel buffer number TEXELS + i, where a variant has them

HEAD = """#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_16bit_storage : require
"""

ADDRESS_HEAD = """#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference_uvec2 : require
layout(std430, set = 0, binding = 0) readonly buffer AddressTable { uvec2 address_table[]; };
"""

# A dispatch may begin at any group: NVIDIA's driver takes no notice of the base of vkCmdDispatchBase.
GRID_1D = """uint group_id() { return first_group + gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x; }
uint thread_id() { return group_id() * gl_WorkGroupSize.x + gl_LocalInvocationID.x; }
"""

# If it is false, words of f16 are stored as float16_t: some drivers' packHalf2x16 rounds toward zero
# and turns larger values into 65504 (AMD's v_cvt_pkrtz_f16_f32). The self-check finds out.
PACKS_HALVES = "layout(constant_id = 102) const bool PACKS_HALVES = true;\n"

# Whether the 16-bit floats of a call are bf16: the upper halves of f32.
BRAIN = """layout(constant_id = 103) const bool BRAIN = false;
uint brain_bits(float x) {
  uint bits = floatBitsToUint(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return bits >> 16 | 0x40u;  // NaN stays one
  return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;  // to nearest even
}
"""

# The shape of cooperative matrices, the subgroups that make a tile of them (4, 8 or 16), and whether their registers
# hold little more than its sums.
MATRICES = "".join(f"layout(constant_id = {104 + i}) const uint MATRIX_{side} = 16;\n" for i, side in enumerate("MNK"))
MATRICES += "layout(constant_id = 107) const uint MATRIX_SUBGROUPS = 8;\n"
MATRICES += "layout(constant_id = 108) const bool FEW_REGISTERS = false;\n"

# How many values of k a compiler sees at a time in a tile without matrices.
UNROLL = "layout(constant_id = 109) const uint UNROLL = 4;\n"

# This replaces packHalf2x16 on devices without 16-bit storage: SwiftShader's turns infinity into NaN and
# lets it spill into the other half. Rounds to nearest even, as float16_t does.
PACK_HALF = """uint half_bits(float x) {
  uint bits = floatBitsToUint(x), sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u;
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;
  if (magnitude < 0x38800000u)
    return sign | (floatBitsToUint(uintBitsToFloat(magnitude) + 0.5) - 0x3f000000u);
  return sign | ((magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13);
}
#define packHalf2x16(v) half_pair(v)
uint half_pair(vec2 v) { return half_bits(v.x) | half_bits(v.y) << 16; }
"""

HALVES = """vec2 unpack_pair(uint w) {
  return BRAIN ? uintBitsToFloat(uvec2(w << 16, w & 0xffff0000u)) : unpackHalf2x16(w);
}
uint pack_pair(vec2 v) {
  return BRAIN ? brain_bits(v.x) | brain_bits(v.y) << 16 : packHalf2x16(v);
}
vec4 unpack_halves(uvec2 w) { return vec4(unpack_pair(w.x), unpack_pair(w.y)); }
uvec2 pack_halves(vec4 v) { return uvec2(pack_pair(v.xy), pack_pair(v.zw)); }
"""

BYTES = """ivec4 unpack_bytes(uint w) { return ivec4((uvec4(w) >> uvec4(0u, 8u, 16u, 24u)) & 255u); }
uint pack_bytes(ivec4 v) {
  uvec4 b = uvec4(v) & 255u;
  return b.x | b.y << 8 | b.z << 16 | b.w << 24;
}
"""


def element(dtype, packed):
    """Returns the array element that single loads and stores use."""
    if dtype == "f16":
        return "uint" if packed else "float16_t"
    return {"f32": "float", "i32": "int", "u8": "uint"}[dtype]


def declare(index, name, access, types, address):
    """Declares the same binding as arrays of each of `types`: x_float, x_uvec4, ..."""
    qualifier = {"read": "readonly ", "write": "writeonly ", "read_write": ""}
    out = ""
    for t in types:
        # Atomics need a buffer that is not writeonly; they work on `uint` arrays only.
        q = "" if t == "uint" and access == "write" else qualifier[access]
        if address:
            out += (f"layout(buffer_reference, std430, buffer_reference_align = {ALIGN[t]}) {q}buffer "
                    f"{name}_{t}_ref {{ {t} data[]; }};\n"
                    f"{name}_{t}_ref {name}_{t}_at = {name}_{t}_ref(address_table[{index}]);\n"
                    f"#define {name}_{t} {name}_{t}_at.data\n")
        else:
            out += (f"layout(std430, set = 0, binding = {index}) {q}buffer {name}_{t}_block "
                    f"{{ {t} {name}_{t}[]; }};\n")
    return out


def texel_loads(i, n, o, dtype):
    """Returns the same accessors as loads(), for f32 and f16, reading texels of 16 bytes."""
    shift = {"f32": 2, "f16": 3}[dtype]
    out = f"""layout(set = 0, binding = {TEXELS + i}) uniform usamplerBuffer {n}_texels;
uvec4 texel_{n}(uint i) {{ return texelFetch({n}_texels, int(({o} + i) >> {shift})); }}
"""
    if dtype == "f32":
        return out + f"""float load_{n}(uint i) {{ return uintBitsToFloat(texel_{n}(i)[({o} + i) & 3]); }}
vec4 load4_{n}(uint i) {{ return uintBitsToFloat(texel_{n}(i)); }}
void load8_{n}(uint i, out vec4 lo, out vec4 hi) {{
  lo = load4_{n}(i);
  hi = load4_{n}(i + 4);
}}
"""
    return out + f"""float load_{n}(uint i) {{
  uint e = {o} + i;
  return unpack_pair(texel_{n}(i)[e >> 1 & 3] >> ((e & 1) * 16)).x;
}}
vec4 load4_{n}(uint i) {{
  uvec4 w = texel_{n}(i);
  return unpack_halves((({o} + i) & 4) != 0 ? w.zw : w.xy);
}}
void load8_{n}(uint i, out vec4 lo, out vec4 hi) {{
  uvec4 w = texel_{n}(i);
  lo = unpack_halves(w.xy);
  hi = unpack_halves(w.zw);
}}
"""


def loads(n, o, dtype, packed):
    if dtype in ("f32", "i32"):
        s, v, cast = ("float", "vec4", "uintBitsToFloat") if dtype == "f32" else ("int", "ivec4", "ivec4")
        return f"""{s} load_{n}(uint i) {{ return {n}_{s}[{o} + i]; }}
uint bits_{n}(uint i) {{ return {n}_uint[{o} + i]; }}
{v} load4_{n}(uint i) {{ return {cast}({n}_uvec4[({o} + i) >> 2]); }}
void load8_{n}(uint i, out {v} lo, out {v} hi) {{
  lo = load4_{n}(i);
  hi = load4_{n}(i + 4);
}}
"""
    if dtype == "u8":
        return f"""int load_{n}(uint i) {{
  uint e = {o} + i;
  return int({n}_uint[e >> 2] >> ((e & 3) * 8) & 255u);
}}
ivec4 load4_{n}(uint i) {{ return unpack_bytes({n}_uint[({o} + i) >> 2]); }}
void load8_{n}(uint i, out ivec4 lo, out ivec4 hi) {{
  uvec2 w = {n}_uvec2[({o} + i) >> 3];
  lo = unpack_bytes(w.x);
  hi = unpack_bytes(w.y);
}}
"""
    if packed:
        single = f"""uint bits_{n}(uint i) {{
  uint e = {o} + i;
  return {n}_uint[e >> 1] >> ((e & 1) * 16) & 0xffffu;
}}
float load_{n}(uint i) {{ return unpack_pair(bits_{n}(i)).x; }}
"""
    else:
        single = f"""uint bits_{n}(uint i) {{ return uint({n}_uint16_t[{o} + i]); }}
float load_{n}(uint i) {{
  if (BRAIN) return uintBitsToFloat(uint({n}_uint16_t[{o} + i]) << 16);
  return float({n}_float16_t[{o} + i]);
}}
"""
    return single + f"""vec4 load4_{n}(uint i) {{ return unpack_halves({n}_uvec2[({o} + i) >> 2]); }}
void load8_{n}(uint i, out vec4 lo, out vec4 hi) {{
  uvec4 w = {n}_uvec4[({o} + i) >> 3];
  lo = unpack_halves(w.xy);
  hi = unpack_halves(w.zw);
}}
"""


def stores(n, o, dtype, packed):
    if dtype in ("f32", "i32"):
        s, v, cast = ("float", "vec4", "floatBitsToUint") if dtype == "f32" else ("int", "ivec4", "uvec4")
        return f"""void store_{n}(uint i, {s} v) {{ {n}_{s}[{o} + i] = v; }}
void store4_{n}(uint i, {v} v) {{ {n}_uvec4[({o} + i) >> 2] = {cast}(v); }}
void store8_{n}(uint i, {v} lo, {v} hi) {{
  store4_{n}(i, lo);
  store4_{n}(i + 4, hi);
}}
"""
    # The stored value takes part in clearing the word, too: v may come from that very word by way of another binding,
    # and then must be loaded first, which NVIDIA's compiler sees only from this.
    if dtype == "u8":
        return f"""void store_{n}(uint i, int v) {{
  uint e = {o} + i, shift = (e & 3) * 8, bits = (uint(v) & 255u) << shift;
  atomicAnd({n}_uint[e >> 2], ~(255u << shift) | bits);
  atomicOr({n}_uint[e >> 2], bits);
}}
void store4_{n}(uint i, ivec4 v) {{ {n}_uint[({o} + i) >> 2] = pack_bytes(v); }}
void store8_{n}(uint i, ivec4 lo, ivec4 hi) {{
  {n}_uvec2[({o} + i) >> 3] = uvec2(pack_bytes(lo), pack_bytes(hi));
}}
"""
    if packed:
        return f"""void store_{n}(uint i, float v) {{
  uint e = {o} + i, shift = (e & 1) * 16, bits = (pack_pair(vec2(v, 0.0)) & 0xffffu) << shift;
  atomicAnd({n}_uint[e >> 1], ~(0xffffu << shift) | bits);
  atomicOr({n}_uint[e >> 1], bits);
}}
void store2_{n}(uint i, vec2 v) {{ {n}_uint[({o} + i) >> 1] = pack_pair(v); }}
void store4_{n}(uint i, vec4 v) {{ {n}_uvec2[({o} + i) >> 2] = pack_halves(v); }}
void store8_{n}(uint i, vec4 lo, vec4 hi) {{
  {n}_uvec4[({o} + i) >> 3] = uvec4(pack_halves(lo), pack_halves(hi));
}}
"""
    return f"""void store_{n}(uint i, float v) {{
  if (BRAIN)
    {n}_uint16_t[{o} + i] = uint16_t(brain_bits(v));
  else
    {n}_float16_t[{o} + i] = float16_t(v);
}}
void store2_{n}(uint i, vec2 v) {{
  if (BRAIN || PACKS_HALVES) {{
    {n}_uint[({o} + i) >> 1] = pack_pair(v);
  }} else {{
    store_{n}(i, v.x);
    store_{n}(i + 1, v.y);
  }}
}}
void store4_{n}(uint i, vec4 v) {{
  if (BRAIN || PACKS_HALVES)
    {n}_uvec2[({o} + i) >> 2] = pack_halves(v);
  else
    {n}_f16vec4[({o} + i) >> 2] = f16vec4(v);
}}
void store8_{n}(uint i, vec4 lo, vec4 hi) {{
  if (BRAIN || PACKS_HALVES) {{
    {n}_uvec4[({o} + i) >> 3] = uvec4(pack_halves(lo), pack_halves(hi));
  }} else {{
    store4_{n}(i, lo);
    store4_{n}(i + 4, hi);
  }}
}}
"""


def write(m, v, extensions, macros, params):
    """Writes the prelude; `params` is the file that defines the kernel's parameters."""
    out = HEAD + "".join(f"#extension {e} : require\n" for e in extensions)
    out += "".join(f"#define {k} {value}\n" for k, value in macros.items())
    out += f"#define ADDRESS {int(v.address)}\n"
    for letter, dtype in v.types.items():
        is_float = dtype in ("f32", "f16")
        out += f"#define {letter}_value {'float' if is_float else 'int'}\n"
        out += f"#define {letter}_vec4 {'vec4' if is_float else 'ivec4'}\n"
        out += f"#define {letter}_FLOAT {int(is_float)}\n"
        out += f"#define {letter}_{dtype.upper()} 1\n"
    if v.local[0] == 0:
        out += "layout(local_size_x_id = 100) in;\n"
    else:
        out += "layout(local_size_x = %d, local_size_y = %d, local_size_z = %d) in;\n" % v.local
    out += "layout(constant_id = 101) const uint SUBGROUP_SIZE = 1;\n"
    out += "" if v.packed else PACKS_HALVES
    out += MATRICES if v.cooperates() else UNROLL if "TILE" in macros else ""
    out += f'#include "params/common.h"\n#include "{params}"\nlayout(push_constant, std430) uniform Push {{ {m.params} p; uint first_group; }};\n'
    out += GRID_1D if m.grid != "3d" else ""
    out += (ADDRESS_HEAD if v.address else "") + BRAIN + (PACK_HALF if v.packed else "") + HALVES + BYTES
    for i, b in enumerate(m.buffers):
        dtype = v.types.get(b.type, b.type)
        arrays = dict.fromkeys([element(dtype, v.packed), "uint", "uvec2", "uvec4"])
        if dtype == "f16" and not v.packed:
            arrays["uint16_t"] = None
            if b.access != "read":
                arrays["f16vec4"] = None
        out += declare(i, b.name, b.access, arrays, v.address)
        offset = f"p.offset[{i}]"
        if b.access == "read" and "texels" in v.requires:
            out += texel_loads(i, b.name, offset, dtype)
        elif b.access != "write":
            out += loads(b.name, offset, dtype, v.packed)
        out += stores(b.name, offset, dtype, v.packed) if b.access != "read" else ""
    return out
