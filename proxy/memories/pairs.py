"""What people ask, what of their memories helps with it, and what is near it but does not: to measure a model by."""

from typing import NamedTuple


class Pair(NamedTuple):
    """A question with two memories."""

    query: str
    helps: str
    near: str
    """About something like it, but of no use for the question."""


PAIRS: tuple[Pair, ...] = tuple(
    Pair(*lines.splitlines())
    for lines in """
Find me a hotel in Paris for the weekend
The user prefers quiet hotels near the centre
The user painted the hotel scene of a school play

What can I cook tonight?
The user is a vegetarian and is allergic to peanuts
The user's kitchen was painted yellow last spring

Book a table for two on Friday
Their favourite restaurant is Luigi's on Mill Street
The user bought a table for the garden

Which laptop should I buy?
The budget for a new computer is 1200 dollars
The user's brother repairs old radios

Write a mail to my boss about the delay
The user's manager is called Helen Brandt
The train to work was late twice in March

What time is it for my daughter right now?
The user's daughter studies in Tokyo
The user's daughter likes horses

Plan a run for tomorrow morning
The user trains for a marathon in October
The user watched a film about sprinters

Fix the failing deploy script
Deployments of this project run on Kubernetes with Helm
The team has its lunch on Thursdays

How should I format the function names?
In this code base functions are written in snake_case
The function hall was booked for the wedding

Recommend a book for my holiday
The user loves historical novels
The user returned a bookshelf to the shop

Where did I park the car?
The car stands on level 3 of the station garage
The user's first car was red

Remind me what to bring to the doctor
The appointment at Doctor Weiss needs the blood test results
The user's neighbour is a nurse

Can I eat this cake?
The user has coeliac disease and must avoid gluten
The user baked with her grandmother

Set up my development environment
The user works on Linux with Neovim
The user's desk stands by the window

Translate this letter for my parents
The user's parents speak Portuguese only
The user's parents live near a lake

Suggest a birthday present for my wife
The user's wife collects vinyl records
The user forgot a birthday party in 2019

What is the password policy for our servers?
Company servers require keys, not passwords
The company's waiters get a bonus

Draft the invoice for the last client
Invoices go out with 19 percent tax and 14 days to pay
The last client had a friendly dog

How do I get to the office?
The office moved to 5 Harbour Road
Office chairs were delivered broken

Which database do we use for orders?
The order service stores its data in PostgreSQL 15
The user ordered a pizza with olives

Give me a workout without jumping
The user injured the left knee in May
The user's son jumps on the trampoline

Summarise the meeting in my usual style
The user wants summaries as short bullet points
The meeting room has a new projector

Is my flight on time?
The user flies with LH 454 to San Francisco on Monday
The user is afraid of spiders

How much did we agree to pay the plumber?
The plumber's offer was 480 euros
The plumber has a blue van

What should I name the new kitten?
The user's other cat is called Miso
The user's aunt sells cat food

Change the thermostat for the night
The user likes the bedroom at 18 degrees
The night bus stops at the school

Busca un hotel en Madrid
El usuario prefiere hoteles tranquilos cerca del centro
El usuario trabajó una vez de camarero en un hotel

¿Qué puedo cenar hoy?
El usuario es vegetariano y alérgico a los frutos secos
El usuario pintó la cocina de amarillo

Escribe un correo a mi jefa
La jefa del usuario se llama Marta Ruiz
El cartero llega a las once

Recomiéndame una película
Al usuario le gustan las películas de ciencia ficción
El cine del barrio cerró en 2012

¿Cuándo es mi cita con el médico?
La cita con la doctora Soler es el jueves a las nueve
El hermano del usuario estudia medicina

¿Qué regalo le compro a mi hijo?
El hijo del usuario colecciona dinosaurios
El hijo del usuario duerme mucho

Corrige el error del servidor
El servidor de producción usa Nginx y Ubuntu
El usuario sirvió la cena en el jardín

Planea mi entrenamiento de mañana
El usuario se prepara para una maratón
El usuario compró zapatos marrones
""".strip().split("\n\n")
)
