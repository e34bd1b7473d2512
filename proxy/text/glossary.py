"""What Spanish words mean in English, for ranking texts that are in English: no translation, a gloss. Pure.

The words are those with which people ask for things to be done: verbs and nouns of tools. A key stands for all words
that begin with it, the longest key first, so that `envi` is `enviar`, `envía` and `envíame`; up to three letters it
stands for words of at most five. Accents do not count.
"""

import re
import unicodedata
from types import MappingProxyType

_LONGEST = 12
_EXACT = 3
_SHORT = 5
_ACCENTS = re.compile("[\u0300-\u036f]+")
_WORD = re.compile(r"[^\W\d_]+")

_FUNCTION = """
al algo algun alguna algunas algunos aquel aquella aqui asi aun aunque como con cual cuales cuando cuanta cuantas cuanto
cuantos de del desde donde dos el ella ellas ellos en entre era eran es esa esas ese eso esos esta estaba estan estar
estas este esto estos estoy fue ha haber habia han has hasta hay he hola igual la las le les lo los mas me mi mis mucha
mucho muchos muy nada necesito ni nos nosotros nuestra nuestro o os otra otro otros para pero podria podrias poco por
porfa porque pueda puede puedes puedo que quien quiero quisiera se sea segun ser si sido sin sobre solo son soy su sus
tal tambien tan tanto te tengo ti tiene tienes toda todas todo todos tu tus un una unas uno unos usted vale y ya yo
gracias favor a
"""
_FUNCTION_WORDS = frozenset(_FUNCTION.split())
_FOREIGN = """
about all am an and any are at be been but by can could did do does for from had has have how i if in into is it its
just let like make my need not of off on or our out please show so some tell that the their them then there these they
this to up want was we were what when where which who will with would you your
"""
_ENGLISH = frozenset(_FOREIGN.split())
_BOTH = frozenset({"a", "he", "me", "no"})
"""Words of both languages: they tell nothing."""

_WORDS = """
abandon leave; abiert open; abr open; abril april; abrill polish; acab finish; acced access; acceso access;
accion action share; aceler accelerate; acept accept; aclar clarify lighten; acondicionado conditioning; acorta shorten;
activ activate enable turn on; actual current; actualiz update; acuerd remind agreement; adelant forward advance;
adjunt attachment attach; administr manage; aeropuerto airport; agenda calendar schedule; agendar schedule;
agosto august; agreg add; agrup group; agua water; ahora now; ahorr save savings; aire air; ajust adjust set settings;
alarma alarm; album album; alert alert; alfombra carpet; aliment food feed; alimentac food; almacen store storage;
alojamiento accommodation lodging; alquil rent; alta register; altavo speaker; alto high; altura height; alumbr light;
amarill yellow; ambiente ambient; ami friend; ampli extend enlarge; anad add; analisis analysis; analiz analyze;
ancho width; animal animal; ano year; anot note; anterior previous; anul cancel; anunci announce ad; apag turn off;
aparat device; aparc park; apart apartment; apellido surname; aplaz postpone; aplica apply; aplicacion application app;
aprob approve; apunt note write; archiv file archive; area area; arranc start; arregl fix repair; articulo article item;
artista artist; asegur insurance secure; asient seat; asign assign; asistent assistant; aspira vacuum; asunto subject;
atenu dim; atras back; audi audio; aument increase raise; autobus bus; automatiz automation; autor author;
autoriz authorize; avanz forward advance; avion plane flight; avis notify alert; ayer yesterday; ayud help; azul blue;
baj lower; bajar lower download; balanc balance; banco bank; bander flag; bano bathroom; barat cheap;
barri neighborhood sweep; bateria battery; bibliotec library; bici bike; bienes property; billete ticket; bitacora log;
blanc white; bloque block lock; boca mouth; bolet ticket; boletin newsletter; bols stock bag; bombill light bulb;
borr delete; bosque forest; boton button; brill brightness; brillant bright; busc search find; buzon mailbox;
cabin cabin; cad expire; cada each; cadena channel string; cafe coffee; caj box; calcul calculate; calefac heating;
calefactor heater; calend calendar; calent warm heat; calidad quality; calient hot; calific rate grade; call street;
calor heat; cama bed; camara camera; cambi change; camin walk; camion truck; campo field; canal channel; cancel cancel;
cancion song; cantante singer; cantidad amount quantity; captur capture; caract feature; carg load charge;
carpet folder; carr cart; carretera road; carta letter menu; cartera wallet portfolio; casa home house; catalog catalog;
caus cause; celular mobile phone; cen dinner; centro center; cerc near; cerr close lock; cerradura lock; cesta basket;
chat chat; chequ check; chic small; chiste joke; ciclo cycle; ciel sky; ciento percent; cierr close lock;
cifr encrypt figure; cine cinema movie; cit appointment; ciudad city; client customer client; clima weather climate;
clon clone; cobr charge collect; coche car; cocina kitchen cook; codigo code; coleg school; coloc place put;
color color; columna column; comand command; coment comment; comenz start; comer eat; comerci business trade;
comid food meal; compan company; compar compare; compart share; compil build compile; complet complete;
compr buy purchase; comprim compress; comprob check verify; comunic communicate; conduc drive; conect connect;
conex connection; confer conference; configur configure settings; confirm confirm; congel freeze; consej advice;
consult query check look up; consum consumption; cont count tell; contact contact; contesta answer; contrasen password;
contrat contract; control control; convers conversation; convert convert; conviert convert; copi copy; corr run;
correg correct; correo mail email; corrig correct; cort cut; cortina curtain; corto short; cosas things; cost cost;
cotiz quote price; cre create; credit credit; cuadr picture table; cuart room quarter; cubiert cover; cuent account;
cuest cost; cumple birthday; curs course; dame give get; dat data; deb owe must; debit debit; decimal decimal;
dej leave; delgad thin; demor delay; depart apartment department; deport sport; deposit deposit; derech right;
desactiv deactivate disable turn off; desayun breakfast; desbloque unlock; descarg download; desconect disconnect;
descongel defrost; describ describe; descrip description; descuent discount; desenchuf unplugged plug; deshab disable;
deshac undo; despach office dispatch; despert wake alarm; despier wake awake; despleg deploy; despli deploy;
despues after; destinatari recipient; destino destination; detalle detail; detect detect; deten stop; detien stop;
deuda debt; devolu return refund; devolv return; devuelv return; dia day; diagn diagnose; diari daily journal;
dibuj draw image; diciembre december; dieta diet; digo say; dime tell get; dinero money; direc address;
directorio directory; disco disk; dispon available; dispositiv device; distan distance; divid split divide;
divis currency; doble double; doctor doctor; documento document; dolar dollar; domingo sunday; dormitorio bedroom;
duch shower; duerm sleep; dur duration; edad age; edific building; edit edit; efectiv cash; ejecut run execute;
ejempl example; ejercici exercise; electric electric; elimin delete remove; embarque boarding; empez start;
empiez start; emple employee; empres company; encargo order; encend turn on; enchuf plug; enciend turn on;
encuentr find; encuest survey; energia energy; enero january; enfri cool; enlace link; enlaz link;
entrada entrance ticket input; entreg deliver; entren train workout; envi send; envio shipment; equip team equipment;
equipaje luggage baggage; err error; escal scale; escanea scan; escen scene; escrib write; escritorio desk desktop;
escuch listen; escuel school; espac space; espanol spanish; esper wait; estacion station season;
estad status state statistics; estadistic statistics; estren release; estudi study; etiquet label tag; euros euro;
evento event; exact exact; exam exam; exit success exit; experi experience; explic explain; export export; extra extra;
extrae extract; extrai extract; fabric manufacture; fact bill invoice; factura invoice bill; fall failure error;
falt missing; famili family; farmacia pharmacy; febrero february; fecha date; feri fair holiday; fichero file;
fiesta party; fij set fix; fila row; filtr filter; fin end; finaliz finish; finanz finance; firm sign;
firma sign signature; fond background bottom; form form; format format; foto photo; frase sentence; frecuen frequency;
fri cold; fuent source; fuer outside; fuert strong loud; fuga leak; funcion function work; fusion merge; gan win earn;
ganancia profit; garaj garage; garant warranty; gas gas; gast expense spend; gato cat; gener generate; gente people;
gestion manage; gir turn rotate; gobiern government; grab record; gracia thanks; grad degree; gradu grade;
grafic chart graph; gran large; gratis free; grup group; guard save store; guia guide; gust like; habitac room bedroom;
habl speak talk; hac do make; hacia toward; hagas do; haz do make; herramient tool; hij child; histor history;
hoja sheet leaf; hombre man; hora time hour; horari schedule; horno oven; hospital hospital; hotel hotel; hoy today;
huesped guest; humed humidity; humo smoke; identific identify id; idioma language; iglesia church;
ilumin light illuminate; imagen image; imagenes images; import import amount; impr print; impresor printer; impuest tax;
inactiv inactive; incendi fire; incid incident issue; inclu include; indic indicate show; inform report information;
ingles english; ingred ingredient; ingres income enter; inici start; inmobili property; inmueble property;
inscrib register enroll; insert insert; instal install; intens intensity brightness; intent try;
intercambi exchange swap; interes interest; interrup switch; introduc enter; inversion investment;
invert invest reverse; investig research; invier winter invest; invit invite; ir go; izquierd left; jardin garden;
jefe boss; jueg game play; jueves thursday; jug play; julio july; junio june; junt together; ladr thief;
lampar lamp light; lanz launch; larg long; lav wash; lavadora washing machine; leche milk; lect reading; lee read;
leer read; lej far; lenguaj language; lent slow; letr lyrics letter; levant raise; libr book; libre free available;
librer bookstore library; licenc license; lig league; limit limit; limpi clean; linea line; list list ready; lista list;
llam call; llave key; lleg arrive; llen full fill; llev take carry; llov rain; lluev rain; lluv rain; local local;
localiz locate; luces lights; lueg then later; lugar place; luminos brightness; lunes monday; luz light; madre mother;
maleta luggage; manana tomorrow morning; mand send; maneja drive manage; manten maintain keep; mapa map; maquin machine;
marc mark dial; marca brand mark; march start march; martes tuesday; marzo march; matricul enroll plate; maxim maximum;
mayo may; medi measure average; medicament medication; medico doctor; medid measure; mejor best improve; memor memory;
mens message; mensual monthly; menu menu; mercado market; mes month; mesa table; metro subway meter; mezcl mix;
microond microwave; miercol wednesday; minim minimum; minut minute; mira look; model model; modific modify update;
moned currency coin; mont mount; mostr show; motor engine; mov move; movil mobile phone;
movimient motion movement transaction; mueb furniture; muestr show; muev move; muj woman; mult fine; multiplic multiply;
mund world; muse museum; music music; mut mute; nacim birth; nacion national country; naranj orange;
naveg browse navigate; neg black deny; negocio business; negr black; nev snow; nevera refrigerator; niev snow;
nino child; nivel level; noch night; nomb name; nomin payroll; notic news; notific notify notification;
noviembre november; nub cloud; nuev new; numer number; objetiv goal; obra work; obten get obtain; obteng get;
ocio leisure; octubre october; ocult hide; ocup busy occupied; ofert offer; oficina office; ojo eye; olvid forget;
opcion option; oper operation; opin opinion review; orden order; ordenador computer; organiz organize; origen origin;
oscur dark; otono autumn; padre father; pag pay; pagina page; pago payment; pais country; palabr word; panel panel;
pantall screen; papel paper; papelera trash; paquet package; parad stop; paraguas umbrella; parar stop; pared wall;
pareja partner; parque park; particip participate; partid match game; pasad past last; pasajer passenger;
pasaporte passport; pasill hallway; paso step; patio patio; pausa pause; pedid order; pedir order ask; peg paste;
peli movie; peluque hairdresser salon; pendient pending; perd lose miss; perfil profile; permis permission;
permit allow; perr dog; persian blind; person person people; pesa weigh weight; peso weight; petic request; pic peak;
pid ask order; piel skin; pis floor flat; piso floor flat; pista track; pizarr board; plan plan; planific plan schedule;
plant plant floor; plato dish; playa beach; plaza square spot; plazo deadline term; poblac population; pon put set play;
pong put set; porcentaj percentage; portal portal; portatil laptop; porton gate; posib possible; posicion position;
posterg postpone; precio price; precip rain precipitation; predic predict; predicc forecast; pregunt question ask;
prend turn on; prepar prepare; presenc presence occupancy; present present; presion pressure; prest loan lend;
presupuest budget quote; primavera spring; primer first; privac privacy; prob try test; problem problem issue;
proces process; produc product produce; product product; profesor teacher; program program schedule; progres progress;
prohib forbid; promedi average; pronostic forecast; propied property; propin tip; propon suggest; proporcion provide;
proteg protect; provee supplier provider; proxim next; proyect project; prueba test; public publish post; puebl town;
puent bridge; puert door port; pulgad inch; puls press pulse; punt point score; queda remain left; quej complaint;
quit remove; radi radio; ram branch; rama branch; rapid fast; reanud resume; rebaj discount sale; recauda raise;
receta recipe prescription; recib receive; recibo receipt; reclam claim; recog collect pick up; recomend recommend;
recomiend recommend; record reminder remember; recordatori reminder; recorr route; recuerd remind;
recuper recover retrieve; red network; redact write draft; redes networks; reduc reduce; reembols refund;
reenvi forward; refriger refrigerator cool; reg water irrigate; regal gift; registr register record log; regla rule;
regres return; reinic restart reset; rellen fill; reloj clock watch; rembols refund; remitent sender; renombr rename;
renov renew; rent rent; repar repair; repet repeat; repit repeat; repositori repository; reproduc play;
reproductor player; reserv book reserve; resolu resolution; resolv solve; respald backup; respond reply answer;
respuest answer response; rest subtract rest; restablec reset; restaur restaurant restore; resuelv solve; result result;
resum summarize; resumen summary; retir withdraw remove; retras delay; retroced rewind; reun meeting;
revis review check; revoc revoke; riego irrigation; riesg risk; roj red; rop clothes; rot broken; rueda wheel;
ruid noise; rut route path; rutin routine; sabad saturday; sac take out; sal exit living; sala living room;
saldo balance; sale leave exit; sali leave exit; salid departure exit output; salon living room; salt skip jump;
salud health; sangr blood; secad dryer; seccion section; seco dry; segu follow; seguim tracking; segund second;
segur secure insurance; seguro insurance secure; selecc select; semaf traffic light; seman week; senal signal;
sensor sensor; sentim sentiment; separ separate; septiembre september; serie series; servicio service; servidor server;
sesion session; siest nap; significa mean; sigu follow next; siguient next; silenc mute; sill chair; simul simulate;
sistem system; siti site; situac situation; sol sun; solicit request; soluc solution; sonando playing; sonid sound;
sospech suspicious; sotano basement; suba raise upload; subasta auction; sube raise upload; subir upload raise;
subtitul subtitle; suel floor; sueld salary; suen sleep sound; suger suggest; sugier suggest; sum add sum;
suministr supply; super supermarket; suscri subscribe subscription; suspend suspend pause; tabl table; taller workshop;
tamano size; tard afternoon late; tarea task; tarif rate fare; tarjet card; tasa rate; taxi taxi; teatr theater;
techo ceiling roof; teclad keyboard; tecnic technical; tejad roof; tele tv television; telefon phone;
temper temperature; temporad season; temporiz timer; tendenc trend; termin finish end; terminal terminal;
termostat thermostat; test test; text text; tiempo time weather; tiend store shop; tierr earth ground; tijer scissors;
titul title; toc play touch; toma take; ton tone; tormenta storm; total total; trabaj work job; traduc translate;
trafic traffic; traig bring; tranquil quiet; transcri transcribe; transfer transfer; transfi transfer; transit traffic;
transmit stream broadcast; transport transport; traslad move; trayect trip route; tren train; tribut tax;
trimestr quarter; turno turn shift; ubic location; ultim last; une join merge; unidad unit; unir join merge;
universi university; urgen urgent; usa use; usuari user; utiliz use; va go; vaca vacation cow; vacaci vacation;
vaci empty; valid validate; valor value rating; valora rating review; vari several; vas go; vaso glass; vecin neighbor;
vehicul vehicle car; veloc speed; venc expire due; vend sell; vent sale; ventana window; ventil fan; ver see show;
veran summer; verd green; verif verify check; versi version; vestid dress; viaj travel trip; vib vibration;
vibra vibration; vide video; viento wind; vierne friday; vigil monitor surveillance; vinc link; vino wine; visit visit;
vist view; vivi live housing; vivo live; volu volume; volv return; voy go; voz voice; vuel flight; vuelt return;
vuelv return; vulner vulnerability; web web; zapat shoe; zona zone area
"""


def _parsed(lines: str) -> dict[str, str]:
    pairs = (each.split(maxsplit=1) for each in lines.split(";"))
    return {key: " ".join(meaning.split()) for key, meaning in pairs}


WORDS = MappingProxyType(_parsed(_WORDS))
"""The beginning of a Spanish word and its English."""


def english(text: str) -> str | None:
    """A text's English gloss, word by word, words without one as they are; None for a text that is not Spanish."""
    words = [_ACCENTS.sub("", unicodedata.normalize("NFKD", word)).lower() for word in _WORD.findall(text)]
    glossed = [(word, _meaning(word)) for word in words if word not in _FUNCTION_WORDS]
    telling = [word for word in words if word not in _BOTH and _meaning(word) != word]
    spanish = sum(word in _FUNCTION_WORDS or _meaning(word) is not None for word in telling)
    foreign = sum(word in _ENGLISH for word in words)
    if not spanish or spanish * 2 < len(telling) or foreign * 3 > spanish:
        return None
    return " ".join(meaning or word for word, meaning in glossed) or None


def _meaning(word: str) -> str | None:
    shortest = 0 if len(word) <= _SHORT else _EXACT
    lengths = range(min(len(word), _LONGEST), shortest, -1)
    return next((WORDS[word[:length]] for length in lengths if _is_key(word, length)), None)


def _is_key(word: str, length: int) -> bool:
    # two letters begin too much
    return word[:length] in WORDS and (length >= _EXACT or length == len(word))
