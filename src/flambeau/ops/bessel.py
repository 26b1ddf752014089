"""Bessel and Airy functions, as formulas: near zero and far away each is something smooth times known factors.

The tables hold Chebyshev coefficients of the smooth part, computed in 40 digits and cut where the rest is below 1e-17.
Far away the argument is turned round, t = c / x - 1, so that one table reaches to infinity.
"""

from __future__ import annotations

import math

from flambeau.kernels.language import expr as e
from flambeau.ops.declare import pointwise
from flambeau.ops.special import special

# -- modified Bessel functions I ---------------------------------------------------------------------------------------

# for x in 0 ... 8: exp(-x) I0(x) and exp(-x) I1(x) / x
# for 1 / x in 0 ... 1 / 8: sqrt(x) exp(-x) I0(x) and the same of I1
I0_NEAR = (
    0.33839763720473803, -0.3046826723431984, 0.17162090152220877, -0.09490109704804764, 0.04930528423967071, -0.02373741480589947,
    0.010546460394594998, -0.004324309995050576, 0.0016394756169413357, -0.0005763755745385824, 0.00018850288509584165,
    -5.754195010082104e-05, 1.64484480707289e-05, -4.41673835845875e-06, 1.1173875391201e-06, -2.6707938539406e-07, 6.046995022542e-08,
    -1.300025009986e-08, 2.65982372468e-09, -5.1897956016e-10, 9.675809035e-11, -1.726826291e-11, 2.95505266e-12, -4.8564468e-13,
    7.676185e-14, -1.168533e-14, 1.71539e-15, -2.4313e-16, 3.331e-17, -4.42e-18,
)  # fmt: skip
I0_FAR = (
    0.4022452055070544, 0.0033691164782556943, 6.889758346916825e-05, 2.89137052083476e-06, 2.0489185894691e-07, 2.266668990498e-08,
    3.39623202571e-09, 4.9406023882e-10, 1.188914711e-11, -3.149916528e-11, -1.321581184e-11, -1.79417853e-12, 7.1801245e-13, 3.8527784e-13,
    1.540086e-14, -4.150569e-14, -9.55485e-15, 3.81168e-15, 1.77256e-15, -3.4255e-16, -2.8276e-16, 3.461e-17, 4.466e-17, -4.83e-18,
    -7.23e-18,
)  # fmt: skip
I1_NEAR = (
    0.12629359322181682, -0.17641651835783406, 0.1026436586898471, -0.05294598120809499, 0.024726449030626516, -0.010564084894626197,
    0.004156422944312888, -0.0015135724506312532, 0.0005122859561685758, -0.00016176081582589674, 4.781565107550054e-05,
    -1.327316365603944e-05, 3.47025130813768e-06, -8.5687202646955e-07, 2.0032947535521e-07, -4.445059128796e-08, 9.3815373865e-09,
    -1.88724975172e-09, 3.6255902816e-10, -6.663489724e-11, 1.17361863e-11, -1.9839744e-12, 3.2237934e-13, -5.042186e-14, 7.60068e-15,
    -1.1056e-15, 1.5536e-16, -2.111e-17, 2.78e-18,
)  # fmt: skip
I1_FAR = (
    0.38928811750914005, -0.009761097491361469, -0.00011058893876262371, -3.88256480887769e-06, -2.5122362378702e-07, -2.63146884689e-08,
    -3.83538038596e-09, -5.5897434622e-10, -1.897495812e-11, 3.252603583e-11, 1.412580744e-11, 2.03562854e-12, -7.1985518e-13,
    -4.0835511e-13, -2.101542e-14, 4.27244e-14, 1.042028e-14, -3.8144e-15, -1.88035e-15, 3.3082e-16, 2.9626e-16, -3.21e-17, -4.65e-17,
    4.41e-18, 7.52e-18,
)  # fmt: skip


@special("i0e")
def i0e(input):
    """exp(-|x|) I0(x)."""
    size = abs(input)
    near = e.chebyshev(size / 4 - 1, I0_NEAR)
    far = e.chebyshev(16 / size - 1, I0_FAR) / e.sqrt(size)
    return e.where(size <= 8, near, far)


@special("i1e")
def i1e(input):
    """exp(-|x|) I1(x)."""
    size = abs(input)
    near = size * e.chebyshev(size / 4 - 1, I1_NEAR)
    far = e.chebyshev(16 / size - 1, I1_FAR) / e.sqrt(size)
    value = e.where(size <= 8, near, far)
    return e.where(input < 0, -value, value)


scaled_i0, scaled_i1 = i0e.forward, i1e.forward


@pointwise(rule="float", inplace=True, complex=False, aliases=("special.i0",))
def i0(input):
    """The modified Bessel function of the first kind, order 0."""
    return e.exp(abs(input)) * scaled_i0(input)


@special("i1")
def i1(input):
    """The modified Bessel function of the first kind, order 1."""
    return e.exp(abs(input)) * scaled_i1(input)


# I0' = I1, I1' = I0 - I1 / x; at zero, where the second is 0 / 0, the slope is one half.
i0.derivative(input=lambda grad, input: grad * (e.exp(abs(input)) * scaled_i1(input)))
i0e.derivative(input=lambda grad, input, result: grad * (scaled_i1(input) - e.sgn(input) * result))
i1.derivative(
    input=lambda grad, input, result: grad * e.where(abs(input) > 1e-30, e.exp(abs(input)) * scaled_i0(input) - result / input, 0.5)
)
i1e.derivative(
    input=lambda grad, input, result: grad * e.where(abs(input) > 1e-30, scaled_i0(input) - result * (e.sgn(input) + 1 / input), 0.5)
)


@special("modified_bessel_i0", differentiable=False, kernel=i0.kernel)
def modified_bessel_i0(input):
    """The modified Bessel function of the first kind, order 0."""


@special("modified_bessel_i1", differentiable=False, kernel=i1.kernel)
def modified_bessel_i1(input):
    """The modified Bessel function of the first kind, order 1."""


# -- modified Bessel functions K ---------------------------------------------------------------------------------------

# for x^2 in 0 ... 4: K0(x) + log(x / 2) I0(x) and x (K1(x) - log(x / 2) I1(x))
# for 1 / x in 0 ... 1 / 2: sqrt(x) exp(x) K0(x) and the same of K1
K0_NEAR = (
    -0.2676636966169514, 0.3442898999246285, 0.0359799365153615, 0.001264615411446926, 2.286212103119452e-05, 2.5347910790261e-07,
    1.90451637722e-09, 1.034969526e-11, 4.259816e-14, 1.3745e-16,
)  # fmt: skip
K1_NEAR = (
    0.7626501136694739, -0.3531559607765449, -0.12261118082265715, -0.006975723859639864, -0.0001730288957513052, -2.43340614156597e-06,
    -2.213387630735e-08, -1.4114883926e-10, -6.6669017e-13, -2.42745e-15,
)  # fmt: skip
K0_FAR = (
    1.2201515410329777, -0.0314481013119645, 0.0015698838857300533, -0.000128495495816278, 1.39498137188765e-05, -1.8317555227191e-06,
    2.766813639445e-07, -4.66048989769e-08, 8.5740340174e-09, -1.6975345094e-09, 3.577397281e-10, -7.95748924e-11, 1.85594911e-11,
    -4.5145979e-12, 1.1403406e-12, -2.980097e-13, 8.03289e-14, -2.22751e-14, 6.3401e-15, -1.8486e-15, 5.512e-16, -1.678e-16, 5.21e-17,
    -1.65e-17,
)  # fmt: skip
K1_FAR = (
    1.3603130952422213, 0.10392373657681724, -0.002857816859622779, 0.0001952155184713516, -1.93619797416608e-05, 2.4064849478372e-06,
    -3.501960603088e-07, 5.74108412545e-08, -1.03457624657e-08, 2.0150497552e-09, -4.190354759e-10, 9.21831519e-11, -2.12996784e-11,
    5.1396397e-12, -1.289174e-12, 3.34842e-13, -8.97671e-14, 2.47715e-14, -7.0198e-15, 2.0387e-15, -6.057e-16, 1.838e-16, -5.69e-17,
    1.79e-17,
)  # fmt: skip


def _scaled_k(x, near, far):
    """exp(x) K(x): infinite at zero, undefined below."""
    value = e.where(x <= 2, e.exp(x) * near, e.chebyshev(4 / x - 1, far) / e.sqrt(x))
    return e.where(x < 0, math.nan, e.where(e.eq(x, 0), math.inf, value))


@special("scaled_modified_bessel_k0", differentiable=False)
def scaled_modified_bessel_k0(input):
    """exp(x) K0(x)."""
    near = e.chebyshev(input * input / 2 - 1, K0_NEAR) - e.log(input / 2) * (e.exp(input) * scaled_i0(input))
    return _scaled_k(input, near, K0_FAR)


@special("scaled_modified_bessel_k1", differentiable=False)
def scaled_modified_bessel_k1(input):
    """exp(x) K1(x)."""
    near = e.chebyshev(input * input / 2 - 1, K1_NEAR) / input + e.log(input / 2) * (e.exp(input) * scaled_i1(input))
    return _scaled_k(input, near, K1_FAR)


@special("modified_bessel_k0", differentiable=False)
def modified_bessel_k0(input):
    """The modified Bessel function of the second kind, order 0."""
    return e.exp(-input) * scaled_modified_bessel_k0.forward(input)


@special("modified_bessel_k1", differentiable=False)
def modified_bessel_k1(input):
    """The modified Bessel function of the second kind, order 1."""
    return e.exp(-input) * scaled_modified_bessel_k1.forward(input)


# -- Bessel functions J and Y ------------------------------------------------------------------------------------------

# for x^2 in 0 ... 64: J0(x), J1(x) / x, Y0(x) - 2/pi log(x) J0(x), (Y1(x) - 2/pi (log(x) J1(x) - 1 / x)) / x
J0_NEAR = (
    0.15772797147489012, -0.008723442352852221, 0.2651786132033368, -0.37009499387264977, 0.15806710233209725, -0.034893769411408884,
    0.004819180069467605, -0.00046062616620627504, 3.246032882100508e-05, -1.76194690776215e-06, 7.608163592419e-08, -2.67925353056e-09,
    7.848696314e-11, -1.94383469e-12, 4.125321e-14, -7.5885e-16, 1.222e-17,
)  # fmt: skip
J1_NEAR = (
    0.08104484632565812, -0.1489751450676521, 0.1609992623572097, -0.08268049176681791, 0.022213639654966037, -0.003646940600769276,
    0.0004050337728354822, -3.255554866857259e-05, 1.98587740499152e-06, -9.52198475675e-08, 3.6871337591e-09, -1.1780266227e-10,
    3.16015458e-12, -7.221755e-14, 1.42321e-15, -2.444e-17,
)  # fmt: skip
Y0_NEAR = (
    -0.03314611320328494, -0.2744743055297453, 0.17903431407718265, 0.26156734625504663, -0.17730201278114358, 0.04719668959576339,
    -0.007287962479552079, 0.0007531135932577742, -5.632079141056987e-05, 3.2065325376548e-06, -1.4407233274019e-07, 5.24879478733e-09,
    -1.5837552542e-10, 4.02633082e-12, -8.747341e-14, 1.64349e-15, -2.698e-17,
)  # fmt: skip
Y1_NEAR = (
    0.0025380132357417816, -0.01608717304766875, -0.09591204536083074, 0.08445197259652346, -0.028328123944594365, 0.005289897544167113,
    -0.0006414551451326356, 5.505982873338744e-05, -3.53808001868935e-06, 1.77078045561544e-07, -7.110550049899e-09, 2.34433790591e-10,
    -6.465151841e-12, 1.51429151e-13, -3.051186e-15, 5.3467e-17,
)  # fmt: skip

# for w = (8 / x)^2 in 0 ... 1: P and Q / sqrt(w) of J = sqrt(2 / (pi x)) (P cos(t) - Q sin(t)) and
# Y = sqrt(2 / (pi x)) (P sin(t) + Q cos(t)), where t = x - pi/4 for order 0 and x - 3 pi/4 for order 1
P0 = (
    0.9994603493475187, -0.0005365220468132117, 3.07518478751947e-06, -5.170594537606e-08, 1.63064646352e-09, -7.864091377e-11,
    5.16826239e-12, -4.3045789e-13, 4.326596e-14, -5.06903e-15, 6.7481e-16, -1.0012e-16, 1.631e-17,
)  # fmt: skip
Q0 = (
    -0.015555854605337009, 6.838519942611649e-05, -7.41449841106065e-07, 1.7972457247969e-08, -7.27191593687e-10, 4.2201219047e-11,
    -3.206747421e-12, 3.00614513e-13, -3.3363282e-14, 4.255225e-15, -6.09993e-16, 9.6621e-17, -1.6686e-17, 3.108e-18, -6.19e-19, 1.31e-19,
)  # fmt: skip
P1 = (
    1.0009030408600137, 0.0008989898330859408, -3.9872843004889e-06, 6.17763396064e-08, -1.8718907491e-09, 8.81689866e-11, -5.7048636e-12,
    4.699196e-13, -4.68422e-14, 5.4527e-15, -7.221e-16, 1.067e-16, -1.73e-17,
)  # fmt: skip
Q1 = (
    0.04677778706953532, -9.62772354915708e-05, 9.13861525795545e-07, -2.0959781384083e-08, 8.22919332765e-10, -4.6863636882e-11,
    3.515218795e-12, -3.26431567e-13, 3.5967766e-14, -4.561252e-15, 6.50828e-16, -1.02691e-16, 1.7676e-17, -3.283e-18, 6.52e-19,
)  # fmt: skip


def _wave(x, p, q):
    """(P, Q, sin x + cos x, sin x - cos x), with sqrt(1 / (pi x)) in P and Q. So x is shifted by pi/4 without rounding it."""
    inverse = 8 / x
    t = 2 * (inverse * inverse) - 1
    scale = e.sqrt(1 / (math.pi * x))
    return scale * e.chebyshev(t, p), scale * inverse * e.chebyshev(t, q), e.sin(x) + e.cos(x), e.sin(x) - e.cos(x)


@special("bessel_j0", differentiable=False)
def bessel_j0(input):
    """The Bessel function of the first kind, order 0."""
    x = abs(input)
    p, q, plus, minus = _wave(x, P0, Q0)
    return e.where(x <= 8, e.chebyshev(x * x / 32 - 1, J0_NEAR), p * plus - q * minus)


@special("bessel_j1", differentiable=False)
def bessel_j1(input):
    """The Bessel function of the first kind, order 1."""
    x = abs(input)
    p, q, plus, minus = _wave(x, P1, Q1)
    value = e.where(x <= 8, x * e.chebyshev(x * x / 32 - 1, J1_NEAR), p * minus + q * plus)
    return e.where(input < 0, -value, value)


@special("bessel_y0", differentiable=False)
def bessel_y0(input):
    """The Bessel function of the second kind, order 0; -inf at zero, NaN below."""
    p, q, plus, minus = _wave(input, P0, Q0)
    t = input * input / 32 - 1
    near = e.chebyshev(t, Y0_NEAR) + (2 / math.pi) * (e.log(input) * e.chebyshev(t, J0_NEAR))
    return e.where(e.eq(input, 0), -math.inf, e.where(input <= 8, near, p * minus + q * plus))


@special("bessel_y1", differentiable=False)
def bessel_y1(input):
    """The Bessel function of the second kind, order 1; -inf at zero, NaN below."""
    p, q, plus, minus = _wave(input, P1, Q1)
    t = input * input / 32 - 1
    j1 = input * e.chebyshev(t, J1_NEAR)
    near = input * e.chebyshev(t, Y1_NEAR) + (2 / math.pi) * (e.log(input) * j1 - 1 / input)
    return e.where(e.eq(input, 0), -math.inf, e.where(input <= 8, near, q * minus - p * plus))


@special("spherical_bessel_j0", differentiable=False)
def spherical_bessel_j0(input):
    """sin(x) / x, 1 at zero and 0 at infinity."""
    return e.where(e.eq(input, 0), 1, e.where(e.isinf(input), 0, e.sin(input) / input))


# -- Airy --------------------------------------------------------------------------------------------------------------

# With z = 2/3 |x|^(3/2): Ai(x) for x in -4 ... 2; 2 sqrt(pi) x^(1/4) exp(z) Ai(x) for x >= 2, in 1 / z;
# P and z Q of sqrt(pi) (-x)^(1/4) Ai(x) = P cos(z - pi/4) + Q sin(z - pi/4) for x <= -4, in 1 / z^2
AIRY_MIDDLE = (
    0.06078525685079726, 0.18996030881729123, -0.250924387032336, -0.09512014013503055, 0.20236324198370076, -0.06418728306305249,
    -0.026814703186039963, 0.024051904281273857, -0.00413259164974895, -0.0020196817905494225, 0.0011250768750654559,
    -0.00011697538709676606, -7.125499253060682e-05, 2.816783310704244e-05, -1.75947423896916e-06, -1.45872015241687e-06,
    4.388747958436e-07, -1.46270958662e-08, -1.949599284185e-08, 4.66055277416e-09, -5.106245118e-11, -1.8343326709e-10, 3.585764204e-11,
    2.6582413e-13, -1.28054476e-12, 2.0885897e-13, 4.87418e-15, -6.89508e-15, 9.5197e-16, 3.598e-17, -2.95e-17, 3.48e-18,
)  # fmt: skip
AIRY_RIGHT = (
    0.9844053049171552, -0.014792784850104199, 0.0007327177465426715, -6.12595423417825e-05, 6.83476697557269e-06, -9.237229735404e-07,
    1.4362253404381e-07, -2.489319422322e-08, 4.70979344005e-09, -9.5838637081e-10, 2.0745855484e-10, -4.737267332e-11, 1.133609981e-11,
    -2.82770678e-12, 7.3207121e-13, -1.9599794e-13, 5.410116e-14, -1.535647e-14, 4.47234e-15, -1.33381e-15, 4.0666e-16, -1.2656e-16,
    4.015e-17, -1.297e-17,
)  # fmt: skip
AIRY_COS = (
    0.9993708890742778, -0.0006216836584374116, 7.18119377436865e-06, -2.3162698135018e-07, 1.321628388853e-08, -1.09387361728e-09,
    1.1794620738e-10, -1.551884191e-11, 2.38692741e-12, -4.1655289e-13, 8.071678e-14, -1.708757e-14, 3.90295e-15, -9.524e-16, 2.4633e-16,
    -6.709e-17, 1.914e-17,
)  # fmt: skip
AIRY_SIN = (
    0.06882170556308001, -0.0006089151840832694, 1.3174151014089972e-05, -6.0140719129083e-07, 4.3275373422985e-08, -4.247731732955e-09,
    5.23228537683e-10, -7.6722909751e-11, 1.2923809453e-11, -2.438529757e-12, 5.05904724e-13, -1.13785138e-13, 2.7441377e-14, -7.034482e-15,
    1.903211e-15, -5.40304e-16, 1.60167e-16, -4.9375e-17, 1.5773e-17, -5.206e-18, 1.771e-18, -6.19e-19,
)  # fmt: skip
Z_RIGHT, Z_LEFT = 2 / 3 * 2**1.5, 2 / 3 * 4**1.5  # z at 2 and at -4


@special("airy_ai", differentiable=False)
def airy_ai(input):
    """The Airy function Ai: a solution of y'' = x y, waves on the left, falling on the right."""
    size = abs(input)
    root = e.sqrt(size)
    z = (2 / 3) * (size * root)
    quarter = e.sqrt(root) * math.sqrt(math.pi)
    right = e.exp(-z) * e.chebyshev(2 * (Z_RIGHT / z) - 1, AIRY_RIGHT) / (2 * quarter)
    t = 2 * ((Z_LEFT / z) * (Z_LEFT / z)) - 1
    wave = e.chebyshev(t, AIRY_COS) * (e.cos(z) + e.sin(z)) + e.chebyshev(t, AIRY_SIN) / z * (e.sin(z) - e.cos(z))
    left = wave * math.sqrt(0.5) / quarter
    middle = e.chebyshev((input + 1) / 3, AIRY_MIDDLE)
    value = e.where(input > 2, right, e.where(input < -4, left, middle))
    return e.where(e.isinf(input), math.nan, value)
